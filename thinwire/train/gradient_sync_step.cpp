// SPDX-License-Identifier: Apache-2.0
// One step of the data-parallel engine.
//
// A bucket starts when the contributions that its parameters are known to make have arrived and
// every earlier bucket has started, so all ranks start in plan order (or in one that they agree on:
// gradient_sync_order.cpp). What a backward contributes is learned from the one before; the first
// one exchanges at its end. From its start to the end of the step a bucket's parameters have no
// .grad, so a contribution that comes all the same makes a tensor of its own (never a write into
// memory that travels) and is exchanged at the end, which the step header makes all ranks agree on.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/exchange/finite.h"
#include "thinwire/train/gradient_sync_impl.h"

namespace thinwire {
namespace {

constexpr int kForgetAfter =
    8;  ///< backwards with fewer contributions before a lower count is believed
constexpr std::int64_t kSmall = 4096;  ///< elements that are searched although they are not copied

}  // namespace

void GradientSync::Impl::begin() {
  if (!broken.empty()) throw CommError(broken);
  if (backward_id() != -1) return;  // a segment recomputed inside a backward
  if (is_open) {
    if (any_started()) {
      remember_failure(fmt::format(
          "step {}: the backward ended with an error after its exchange had begun, so this "
          "rank no longer agrees with the others; build a new group",
          step));
      throw CommError(broken);
    }
    const bool unfinished = nested_end;
    close();
    if (unfinished)
      throw ConfigError(fmt::format(
          "step {}: gradients were computed inside another backward whose end was not seen, "
          "and were not exchanged; call finish() after such a backward",
          step));
  }
  follow_change();
  if (!alone && synchronising && !buffer_messages.empty()) {
    send_buffers();
    sequence = hash_bytes(&step, sizeof step, sequence + 1);
  }
  if (!begun) begun_s = recorder.now();
  begun = true;
  if (synchronising) tell(Phase::step_begin, step);
}

void GradientSync::Impl::follow_change() {
  if (alone) return;
  const std::string what = change();
  if (what.empty()) return;
  meet_for_change(what);
  if (std::exchange(plan_was_set, false)) options.plan.clear();
  try {
    set_up(fmt::format("at step {}", step));
  } catch (const std::exception& error) {
    remember_failure(fmt::format("step {} failed before: {}", step, error.what()));
    throw;
  }
  counters_before = exchanger->group(0).counters();
  prepare_buffers();
}

void GradientSync::Impl::tell(Phase phase, std::int64_t at_step, int bucket) {
  now->move_to(at_step, bucket);
  strategy->on(phase, *now);
}

void GradientSync::Impl::end_update() {
  if (!broken.empty()) throw CommError(broken);
  if (step == 0) return;
  recorder.add({.step = step - 1,
                .kind = OpKind::update,
                .index = kWhole,
                .begin_s = exchanged_s,
                .end_s = recorder.now()});
  try {
    tell(Phase::update_end, step - 1);
  } catch (const std::exception& error) {
    remember_failure(fmt::format("step {} failed before: {}", step - 1, error.what()));
    throw;
  }
}

void GradientSync::Impl::open() {
  if (!broken.empty()) throw CommError(broken);
  const int id = backward_id();
  if (id != -1 && id != last_backward) {
    last_backward = id;
    call_at_end(*this);
  }
  if (is_open) return;
  is_open = true;
  last_contribution_s = recorder.now();
  if (begun)
    recorder.add({.step = step,
                  .kind = OpKind::forward,
                  .index = kWhole,
                  .begin_s = begun_s,
                  .end_s = last_contribution_s});
  else
    begun_s = last_contribution_s;
  for (std::size_t b = 0; b < missing.size(); ++b) {
    missing[b] = 0;
    for (const int i : buckets->parameters_of(static_cast<int>(b)))
      missing[b] += awaited(trained[static_cast<std::size_t>(i)]) > 0 ? 1 : 0;
  }
}

void GradientSync::Impl::reached() { open(); }

void GradientSync::Impl::contribution(int index, const at::Tensor& added) {
  open();
  Trained& one = trained[static_cast<std::size_t>(index)];
  at::Tensor& grad = one.tensor.mutable_grad();
  if (!added.defined() || !grad.defined()) return;
  const at::NoGradGuard no_grad;
  try {
    refuse_kind(grad, one);
    const Seconds now = recorder.now();
    recorder.add({.step = step,
                  .kind = OpKind::backward,
                  .index = index,
                  .begin_s = last_contribution_s,
                  .end_s = now});
    last_contribution_s = now;
    ++one.count;
    one.touched = true;
    const auto [first, last] = buckets->buckets_of(index);
    if (one.gone) return keep_late(one, grad);
    if (buckets->alone(index)) {
      one.owned = owns_its_memory(grad, added);
      search_kept(one, grad);
    } else if (buckets->place(index).is_same(grad)) {
      search_kept(one, grad);
    } else {
      put(index, grad, false);
      grad = buckets->place(index);
    }
    if (!synchronising || !learned || one.count != awaited(one)) return;
    for (int bucket = first; bucket <= last; ++bucket) --missing[static_cast<std::size_t>(bucket)];
    if (readiness || missing[static_cast<std::size_t>(first)] == 0) start_ready();
  } catch (const std::exception& error) {
    if (any_started())
      remember_failure(fmt::format("step {} failed before: {}", step, error.what()));
    throw;
  }
}

void GradientSync::Impl::refuse_kind(const at::Tensor& grad, const Trained& one) const {
  if (grad.layout() != at::kStrided)
    throw UnsupportedError(
        fmt::format("the gradient of '{}' is sparse; only dense gradients are exchanged (build the "
                    "embedding with sparse = false, or leave it out by name)",
                    one.name));
  if (grad.requires_grad())
    throw UnsupportedError(
        fmt::format("the gradient of '{}' has a history (backward with create_graph); an exchange "
                    "cannot be differentiated: take such gradients with autograd::grad",
                    one.name));
}

/// The one extra pass over a gradient's bytes; none where .grad is in its place already, or travels
/// alone.
void GradientSync::Impl::put(int index, const at::Tensor& grad, bool owned) {
  Trained& one = trained[static_cast<std::size_t>(index)];
  const bool search = one.touched && options.finite != FiniteCheck::none;
  if (const auto found = buckets->put(index, grad, owned, search); found >= 0)
    one.not_finite = found;
}

void GradientSync::Impl::search_kept(Trained& one, const at::Tensor& grad) const {
  // What is not finite would stay in a memory for good.
  if (options.finite == FiniteCheck::all || (has_memories && options.finite != FiniteCheck::none) ||
      (options.finite == FiniteCheck::copied && grad.numel() <= kSmall))
    one.not_finite = count_not_finite(grad);
}

void GradientSync::Impl::keep_late(Trained& one, at::Tensor& grad) {
  if (options.finite != FiniteCheck::none) one.not_finite += count_not_finite(grad);
  if (one.late.defined())
    one.late.add_(grad);
  else
    one.late = grad;
  grad.reset();
}

void GradientSync::Impl::start_ready() {
  if (readiness) agree_on_ready();
  while (!readiness && next_bucket < buckets->count() &&
         missing[static_cast<std::size_t>(next_bucket)] == 0)
    start_bucket(next_bucket);
  exchanger->poll();
}

void GradientSync::Impl::start_bucket(int bucket) {
  for (const int i : buckets->parameters_of(bucket)) {
    Trained& one = trained[static_cast<std::size_t>(i)];
    if (std::exchange(one.gone, true)) continue;  // the rest of it: stands there already
    at::Tensor& grad = one.tensor.mutable_grad();
    if (!grad.defined()) {
      one.touched = false;  // summed up earlier, and cleared by the user since
      one.not_finite = 0;
      buckets->put_zero(i);
    } else {
      if (!one.touched) one.kept = buckets->place(i).is_same(grad) ? grad.clone() : grad;
      // What came in an earlier backward may have been looked at since.
      if (one.count == 0) one.owned = owns_its_memory(grad, {});
      put(i, grad, one.touched && one.owned);
    }
    grad.reset();
  }
  at::Tensor& message = buckets->message(bucket);
  const double own = weight();
  if (own == 0)
    message.zero_();
  else if (own != 1)
    message.mul_(own);
  ++next_bucket;
  if (has_memories) now->set_counts(finite_in(bucket));
  tell(Phase::grad_ready, step, bucket);
}

bool GradientSync::Impl::finite_in(int bucket) const {
  for (const int i : buckets->parameters_of(bucket))
    if (trained[static_cast<std::size_t>(i)].not_finite > 0) return false;
  return true;
}

void GradientSync::Impl::ended(bool nested) {
  if (!is_open) return;
  if (nested)
    nested_end = true;
  else
    finish();
}

void GradientSync::Impl::finish() {
  if (!broken.empty()) throw CommError(broken);
  backward_end_s = recorder.now();
  if (!is_open) open();
  if (!synchronising) return close();
  if (!exchanges_gradients) {
    tell(Phase::backward_end, step);
    tell(Phase::update_begin, step);
    return finish_alone();
  }
  const at::NoGradGuard no_grad;
  try {
    exchange_rest();
    report_not_finite();
    if (!skips) add_late();
    hand_out();
    report_unused();
  } catch (const std::exception& error) {
    remember_failure(fmt::format("step {} failed before: {}", step, error.what()));
    throw;
  }
  learn();
  finish_alone();
}

/// What a step has in common with one where nothing is exchanged.
void GradientSync::Impl::finish_alone() {
  const CommCounters now = exchanger->group(0).counters();
  stats.step = step;
  stats.compute_s = backward_end_s - begun_s;
  exchanged_s = recorder.now();
  stats.exposed_s = exchanged_s - backward_end_s;
  stats.payload_bytes = now.payload_bytes - counters_before.payload_bytes;
  stats.wire_bytes = stats.payload_bytes + now.header_bytes - counters_before.header_bytes;
  counters_before = now;
  ++step;
  sequence = hash_bytes(&step, sizeof step, sequence);
  counts_stated = false;
  excused = false;
  weight_now.reset();
  begun = false;
  close();
}

void GradientSync::Impl::close() {
  for (Trained& one : trained) {
    one.count = 0;
    one.gone = false;
  }
  is_open = nested_end = agreeing = false;
  next_bucket = 0;
  if (!synchronising) begun = false;
}

void GradientSync::Impl::remember_failure(const std::string& text) {
  broken = text;
  close();
}

void GradientSync::Impl::exchange_rest() {
  if (readiness) agree_on_rest();
  while (next_bucket < buckets->count()) start_bucket(next_bucket);
  // A group that has ended refuses the header at once; the bucket that was in flight has the better
  // words.
  std::exception_ptr refused;
  try {
    send_header();
  } catch (const CommError& error) {
    refused = std::make_exception_ptr(
        CommError(fmt::format("header of step {}: {}", step, error.what())));
  }
  tell(Phase::backward_end, step);
  const auto read_header = [&] {
    try {
      header_handle.wait();
    } catch (const CommError& error) {
      throw CommError(fmt::format("header of step {}: {}", step, error.what()));
    }
    check_header();
    skips = has_memories && any_not_finite();
  };
  // A memory must know whether the step counts before what was sent is made use of.
  if (has_memories && !refused) {
    read_header();
    if (skips) now->skip();
  }
  tell(Phase::update_begin, step);
  if (refused) std::rethrow_exception(refused);
  if (!has_memories) read_header();
}

/// Contributions that came after their bucket had started, on any rank, are averaged on their own
/// and added.
void GradientSync::Impl::add_late() {
  Comm& group = exchanger->group(0);
  for (int i = 0; i < static_cast<int>(trained.size()); ++i) {
    bool anywhere = false;
    for (int rank = 0; rank < world.size(); ++rank) anywhere = anywhere || came_late(rank, i);
    if (!anywhere) continue;
    Trained& one = trained[static_cast<std::size_t>(i)];
    const at::Tensor& view = buckets->place(i);
    at::Tensor extra = at::empty_like(view);
    if (one.late.defined())
      extra.copy_(one.late).mul_(weight());
    else
      extra.zero_();
    one.late.reset();
    DType dtype = *dtype_of(view.scalar_type());
    std::int64_t count = view.numel();
    if (view.is_complex()) {
      dtype = dtype == DType::c64 ? DType::f32 : DType::f64;
      count *= 2;
    }
    const int exchange = exchange_of[static_cast<std::size_t>(buckets->buckets_of(i).first)];
    group.all_reduce({exchange, step, i + 1}, {extra.data_ptr(), count, dtype, -1}, Combine::mean)
        .wait();
    view.add_(extra);
  }
}

void GradientSync::Impl::hand_out() {
  for (int i = 0; i < static_cast<int>(trained.size()); ++i) {
    Trained& one = trained[static_cast<std::size_t>(i)];
    // Used nowhere: whatever the user had there stays, as in one process; but what memories have
    // held back is somebody's gradient.
    const bool any = used_anywhere(i) || (has_memories && buckets->place(i).any().item<bool>());
    one.tensor.mutable_grad() = any ? buckets->place(i) : one.kept;
    // No gradient: optimizers leave the parameter as it is.
    if (skips || (skipped_is_frozen && !was_sent(i))) {
      one.tensor.mutable_grad().reset();
      one.late.reset();
    }
    buckets->let_go(i);
    one.kept.reset();
    one.touched = false;
    one.not_finite = 0;
  }
}

/// Whether some part of the parameter's gradient was exchanged in this step.
bool GradientSync::Impl::was_sent(int index) const {
  for (int rank = 0; rank < world.size(); ++rank)
    if (came_late(rank, index)) return true;
  const auto [first, last] = buckets->buckets_of(index);
  const auto& exchanges = exchanger->plan().exchanges;
  for (int bucket = first; bucket <= last; ++bucket) {
    const auto id = static_cast<std::size_t>(exchange_of[static_cast<std::size_t>(bucket)]);
    if (fires(exchanges[id].start, step)) return true;
  }
  return false;
}

void GradientSync::Impl::learn() {
  for (Trained& one : trained) {
    if (excused) break;
    if (!learned || one.count >= one.expected || (!readiness && ++one.below >= kForgetAfter)) {
      one.expected = one.count;
      one.below = 0;
    }
  }
  learned = learned || !excused;
}

}  // namespace thinwire
