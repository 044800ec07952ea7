// SPDX-License-Identifier: Apache-2.0
// Set-up of the data-parallel engine: agreement, plan, first synchronisation; and its public face.
#include "thinwire/train/gradient_sync.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/narrow.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/message_ids.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/version.h"
#include "thinwire/plan/plan_builder.h"
#include "thinwire/plan/planners.h"
#include "thinwire/train/agreement.h"
#include "thinwire/train/gradient_sync_impl.h"

namespace thinwire {
namespace {

void check_kind(const NamedTensor& one) {
  const at::Tensor& tensor = one.tensor;
  if (!tensor.defined()) throw ConfigError(fmt::format("'{}' is an undefined tensor", one.name));
  if (!tensor.is_cpu())
    throw UnsupportedError(
        fmt::format("'{}' is on {}; gradients are exchanged from host memory (cpu) only", one.name,
                    tensor.device().str()));
  if (tensor.layout() != at::kStrided)
    throw UnsupportedError(
        fmt::format("'{}' is sparse; only dense parameters are exchanged", one.name));
  if (!dtype_of(tensor.scalar_type()))
    throw UnsupportedError(fmt::format("'{}' has elements of type {}, which no message carries",
                                       one.name, c10::toString(tensor.scalar_type())));
}

/// Shared parameters stand under several names; the first one counts.
std::vector<NamedTensor> once_each(std::vector<NamedTensor> list) {
  std::unordered_set<const void*> seen;
  std::vector<NamedTensor> out;
  for (auto& one : list) {
    check_kind(one);
    if (seen.insert(one.tensor.unsafeGetTensorImpl()).second) out.push_back(std::move(one));
  }
  return out;
}

Declared declared(const NamedTensor& one, bool buffer, bool excluded) {
  const at::Tensor& t = one.tensor;
  return {.name = one.name,
          .dtype = std::string(to_string(*dtype_of(t.scalar_type()))),
          .shape = t.sizes().vec(),
          .strides = t.strides().vec(),
          .buffer = buffer,
          .frozen = !buffer && !t.requires_grad(),
          .excluded = excluded};
}

std::uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  return hash_bytes(dense.const_data_ptr(), static_cast<std::int64_t>(dense.nbytes()));
}

}  // namespace

GradientSync::Impl::Impl(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffer_list,
                         Comm& w, SyncOptions o)
    : world(w),
      options(std::move(o)),
      all_parameters(once_each(std::move(parameters))),
      buffers(once_each(std::move(buffer_list))),
      recorder(w.rank()),
      counts(static_cast<std::size_t>(w.size()), 0) {
  strategy = make_strategy(options.strategy);
  if (!options.notice) options.notice = [](const std::string& text) { thinwire::notice(text); };
  if (options.order != "plan" && options.order != "agreed")
    throw ConfigError(fmt::format("order must be plan or agreed, got '{}'", options.order));
  for (const std::string& name : options.excluded) {
    const auto has_name = [&](const NamedTensor& one) { return one.name == name; };
    if (std::none_of(all_parameters.begin(), all_parameters.end(), has_name) &&
        std::none_of(buffers.begin(), buffers.end(), has_name))
      throw ConfigError(fmt::format("excluded: there is no parameter or buffer '{}'", name));
  }
}

bool GradientSync::Impl::is_excluded(const std::string& name) const {
  return std::find(options.excluded.begin(), options.excluded.end(), name) !=
         options.excluded.end();
}

Plan GradientSync::Impl::make_plan() {
  Profile profile;
  for (const Trained& one : trained)
    profile.params.push_back(
        {one.name, *dtype_of(one.tensor.scalar_type()), one.tensor.sizes().vec()});
  Grouped grouped;
  if (options.plan.empty())
    grouped = make_unmeasured_grouping(parse_spec(options.grouping), profile.params, world.size());
  skipped_is_frozen = grouped.frozen;
  PlanBuilder builder({.tensors = profile.params,
                       .grouping = std::move(grouped.grouping),
                       .ranks = world.size(),
                       .form = parse_chain(options.form),
                       .algorithm = options.algorithm,
                       .every = grouped.every});
  strategy->declare(builder, profile);
  declarations = builder.declared();
  if (options.plan.empty()) return builder.plan();
  Plan plan = plan_from_json(options.plan, "the plan given");
  add_step_header(plan);
  return plan;
}

void GradientSync::Impl::check_plan_fits(const Plan& plan) const {
  if (plan.tensors.size() != trained.size())
    throw ConfigError(fmt::format("the plan has {} tensors, the model trains {}",
                                  plan.tensors.size(), trained.size()));
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const TensorDesc& planned = plan.tensors[i];
    const at::Tensor& tensor = trained[i].tensor;
    if (planned.name != trained[i].name || planned.dtype != *dtype_of(tensor.scalar_type()) ||
        planned.shape != tensor.sizes().vec())
      throw ConfigError(
          fmt::format("the plan's tensor {} is '{}' with {} elements, the model's is '{}' with {}",
                      i, planned.name, elements(planned), trained[i].name, tensor.numel()));
  }
}

void GradientSync::Impl::set_up(const std::string& when) {
  std::vector<Declared> mine;
  std::unordered_set<const void*>
      touched;  // sums that have not been exchanged yet outlive a change
  for (const Trained& one : trained)
    if (one.touched) touched.insert(one.tensor.unsafeGetTensorImpl());
  trained.clear();
  position.clear();
  dtypes.clear();
  shapes.clear();
  for (std::size_t i = 0; i < all_parameters.size(); ++i) {
    const NamedTensor& one = all_parameters[i];
    const bool out = is_excluded(one.name);
    mine.push_back(declared(one, false, out));
    dtypes.push_back(one.tensor.scalar_type());
    shapes.push_back(one.tensor.sizes().vec());
    if (out || !one.tensor.requires_grad()) continue;
    trained.push_back({.name = one.name, .tensor = one.tensor});
    trained.back().touched = touched.contains(one.tensor.unsafeGetTensorImpl());
    position.push_back(static_cast<int>(i));
  }
  for (const NamedTensor& one : buffers) mine.push_back(declared(one, true, is_excluded(one.name)));
  agree_on_parameters(*world.membership(), mine, when);

  hooks.reset();
  now.reset();
  readiness.reset();  // its communicator goes with the exchanger
  const Plan plan = make_plan();
  check_plan_fits(plan);  // before what memories keep moves over
  const FormState kept = exchanger ? exchanger->state() : FormState();
  exchanger = std::make_unique<Exchanger>(world, plan, recorder);
  keep_form_state(kept);
  tensors.clear();
  for (const Trained& one : trained) tensors.push_back(one.tensor);
  const bool dense =
      std::all_of(plan.exchanges.begin(), plan.exchanges.end(), [](const Exchange& exchange) {
        return exchange.start.every == 1 &&
               (exchange.form.empty() ||
                (exchange.form.size() == 1 && exchange.form[0].name == "none"));
      });
  alone = world.size() == 1 && dense;
  sequence = exchanger->plan_digest();
  exchange_of.assign(plan.grouping.size(), 0);
  std::vector<bool> in_place(plan.grouping.size());
  exchanges_gradients = has_memories = false;
  for (const Exchange& exchange : plan.exchanges) {
    if (exchange.what != Role::gradient) continue;
    exchanges_gradients = !alone;
    has_memories = has_memories || exchanger->has_memories(exchange.id);
    exchange_of[static_cast<std::size_t>(exchange.bucket)] = exchange.id;
    in_place[static_cast<std::size_t>(exchange.bucket)] = exchanger->in_place(exchange.id);
  }
  const auto skips_steps = [](const Exchange& exchange) { return exchange.start.every > 1; };
  if (std::any_of(plan.exchanges.begin(), plan.exchanges.end(), skips_steps))
    must_agree(*world.membership(), "what is done with skipped gradients",
               skipped_is_frozen ? "frozen" : "zero");
  if (exchanges_gradients) buckets = std::make_unique<Buckets>(plan, tensors, in_place);
  now = std::make_unique<Step>(*exchanger, declarations, tensors,
                               exchanges_gradients ? buckets.get() : nullptr, options.seed);
  bit_words = (trained.size() + 63) / 64;
  header_words = step_header_words(trained.size());
  header_id = step_header(plan);
  headers.assign(header_words * static_cast<std::size_t>(world.size()), 0);
  missing.clear();
  learned = false;
  if (!exchanges_gradients) return;
  missing.assign(plan.grouping.size(), 0);
  set_up_order();
  hooks = std::make_unique<ParameterHooks>(tensors, weak_from_this());
}

/// Sends tensors as they lie in memory; only one that is not dense goes through a copy.
void GradientSync::Impl::broadcast_from_first(std::span<at::Tensor> tensors, std::int32_t part) {
  Comm& group = exchanger->group(0);
  std::vector<at::Tensor> sent;
  std::vector<Handle> handles;
  for (at::Tensor& tensor : tensors) {
    sent.push_back(tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous());
    handles.push_back(group.broadcast(
        {-1, step, part++},
        {sent.back().data_ptr(), sent.back().numel(), *dtype_of(tensor.scalar_type()), -1}, 0));
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    handles[i].wait();
    if (!sent[i].is_same(tensors[i])) tensors[i].copy_(sent[i]);
  }
}

void GradientSync::Impl::first_synchronisation() {
  const at::NoGradGuard no_grad;
  static const std::string operation = "first synchronisation of parameters";
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto* list : {&all_parameters, &buffers})
    for (const NamedTensor& one : *list)
      if (!is_excluded(one.name)) {
        names.push_back(one.name);
        tensors.push_back(one.tensor.detach());
      }
  if (!alone) {
    try {
      broadcast_from_first(tensors, 0);
    } catch (const CommError& error) {
      throw CommError(operation + ": " + error.what());
    }
  }
  if (options.after_first_sync) options.after_first_sync();
  if (alone) return;
  std::vector<std::uint64_t> hashes;
  for (const at::Tensor& tensor : tensors) hashes.push_back(hash_of(tensor));
  agree_on_values(*world.membership(), names, hashes, operation);
}

void GradientSync::Impl::prepare_buffers() {
  buffer_messages.clear();
  if (!options.broadcast_buffers || alone) return;
  std::map<at::ScalarType, std::vector<int>> by_dtype;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (!is_excluded(buffers[i].name) && buffers[i].tensor.numel() > 0)
      by_dtype[buffers[i].tensor.scalar_type()].push_back(static_cast<int>(i));
  for (const auto& [dtype, members] : by_dtype) {
    BufferMessage& message = buffer_messages.emplace_back();
    std::int64_t total = 0;
    for (const int i : members) total += buffers[static_cast<std::size_t>(i)].tensor.numel();
    message.flat = at::empty({total}, at::TensorOptions().dtype(dtype));
    message.members = members;
    std::int64_t offset = 0;
    for (const int i : members) {
      const at::Tensor& tensor = buffers[static_cast<std::size_t>(i)].tensor;
      message.slots.push_back(message.flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  }
}

void GradientSync::Impl::send_buffers() {
  const at::NoGradGuard no_grad;
  Comm& group = exchanger->group(0);
  std::int32_t part = 0;
  for (BufferMessage& message : buffer_messages) {
    if (group.rank() == 0)
      for (std::size_t i = 0; i < message.members.size(); ++i)
        message.slots[i].copy_(buffers[static_cast<std::size_t>(message.members[i])].tensor);
    try {
      group
          .broadcast({-1, step, part++},
                     {message.flat.data_ptr(), message.flat.numel(),
                      *dtype_of(message.flat.scalar_type()), -1},
                     0)
          .wait();
    } catch (const CommError& error) {
      throw CommError(fmt::format("buffers ('{}' and others) of step {}: {}",
                                  buffers[static_cast<std::size_t>(message.members[0])].name, step,
                                  error.what()));
    }
    if (group.rank() == 0) continue;
    for (std::size_t i = 0; i < message.members.size(); ++i)
      buffers[static_cast<std::size_t>(message.members[i])].tensor.copy_(message.slots[i]);
  }
}

/// Why what was agreed on no longer holds: another dtype, shape, or set of trained parameters.
/// Empty while it does.
std::string GradientSync::Impl::change() const {
  std::size_t next = 0;
  for (std::size_t i = 0; i < all_parameters.size(); ++i) {
    const auto& [name, tensor] = all_parameters[i];
    const bool was_trained = next < position.size() && position[next] == static_cast<int>(i);
    if (tensor.scalar_type() != dtypes[i])
      return fmt::format("'{}' was {} and is {}", name, c10::toString(dtypes[i]),
                         c10::toString(tensor.scalar_type()));
    if (tensor.sizes() != at::IntArrayRef(shapes[i]))
      return fmt::format("'{}' had the shape [{}] and has [{}]", name, fmt::join(shapes[i], ","),
                         fmt::join(tensor.sizes(), ","));
    if (!was_trained && tensor.requires_grad() && !is_excluded(name))
      return fmt::format("'{}' was frozen and is trained", name);
    if (was_trained && !tensor.requires_grad())
      return fmt::format("'{}' was trained and is frozen", name);
    if (was_trained && hooks && !hooks->current(static_cast<int>(next), tensor))
      return fmt::format("'{}' has been made anew", name);
    next += was_trained ? 1 : 0;
  }
  return {};
}

/// All ranks change their models in the same step. A rank that has not calls something else here,
/// which the transport sees at once, and not a model that nobody has compared.
void GradientSync::Impl::meet_for_change(const std::string& what) {
  Comm& group = exchanger->group(0);
  std::int64_t* mine = header_of(group.rank());
  try {
    group
        .all_gather(
            {kAgreement, step, 0},
            {headers.data(), group.size() * static_cast<std::int64_t>(header_words), DType::i64},
            {mine, static_cast<std::int64_t>(header_words), DType::i64})
        .wait();
  } catch (const CommError& error) {
    throw CommError(fmt::format("step {}: {} on rank {}, and not on every rank: {}", step, what,
                                group.rank(), error.what()));
  }
}

GradientSync::GradientSync(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
                           Comm& world, SyncOptions options)
    : impl_(std::make_shared<Impl>(std::move(parameters), std::move(buffers), world,
                                   std::move(options))) {
  impl_->listener = number_of(impl_->weak_from_this());
  must_agree(*world.membership(), "the strategy", impl_->options.strategy);
  must_agree(*world.membership(), "the order of buckets", impl_->options.order);
  impl_->set_up("at construction");
  impl_->first_synchronisation();
  impl_->prepare_buffers();
  impl_->counters_before = impl_->exchanger->group(0).counters();
}

GradientSync::~GradientSync() = default;
void GradientSync::begin() { impl_->begin(); }
void GradientSync::mark(std::span<at::Tensor* const> outputs) {
  thinwire::mark(outputs, impl_->listener);
}
void GradientSync::finish() {
  if (impl_->is_open || impl_->begun) impl_->finish();
}
void GradientSync::set_form(const std::string& form) { impl_->set_form(form); }
void GradientSync::set_plan(const std::string& plan) { impl_->set_plan(plan); }
bool GradientSync::follow_change() {
  if (impl_->is_open || !impl_->broken.empty()) return false;
  impl_->follow_change();
  return true;
}
std::vector<NamedTensor> GradientSync::form_state() { return impl_->form_state(); }
void GradientSync::load_form_state(const std::vector<NamedTensor>& state) {
  impl_->load_form_state(state);
}
void GradientSync::end_update() { impl_->end_update(); }
bool GradientSync::set_sync(bool on) { return std::exchange(impl_->synchronising, on); }
bool GradientSync::sync() const { return impl_->synchronising; }
void GradientSync::set_samples(std::int64_t samples) { impl_->state_samples(samples); }
std::int64_t GradientSync::total_samples() { return impl_->total_samples(); }

void GradientSync::join_without_batch() {
  impl_->begin();
  if (!impl_->synchronising) return;
  impl_->excused = true;
  impl_->finish();
}

void GradientSync::set_buffers(std::vector<NamedTensor> buffers) {
  auto fresh = once_each(std::move(buffers));
  const auto& old = impl_->buffers;
  bool same = fresh.size() == old.size();
  for (std::size_t i = 0; same && i < fresh.size(); ++i)
    same = fresh[i].name == old[i].name &&
           fresh[i].tensor.scalar_type() == old[i].tensor.scalar_type() &&
           fresh[i].tensor.sizes() == old[i].tensor.sizes();
  impl_->buffers = std::move(fresh);
  if (!same) impl_->prepare_buffers();
}

const StepStats& GradientSync::last_step() const { return impl_->stats; }
std::int64_t GradientSync::step() const { return impl_->step; }
const Plan& GradientSync::plan() const { return impl_->exchanger->plan(); }
std::uint64_t GradientSync::plan_digest() const { return impl_->exchanger->plan_digest(); }
Trace GradientSync::trace() const { return impl_->recorder.trace(); }
Comm& GradientSync::group() { return impl_->exchanger->group(0); }

}  // namespace thinwire
