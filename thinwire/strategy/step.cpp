// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <fmt/format.h>

#include <utility>

#include "thinwire/core/error.h"
#include "thinwire/strategy/strategy.h"

namespace thinwire {
namespace {

bool fires_at(const When& when, Phase phase, std::int64_t step) {
  return when.phase == phase && fires(when, step);
}

}  // namespace

Step::Step(Exchanger& exchanger, std::span<const Exchange> declared,
           std::span<const at::Tensor> parameters, Buckets* gradients, std::uint64_t seed)
    : exchanger_(exchanger), parameters_(parameters), gradients_(gradients) {
  slot_.seed = seed;
  for (const Exchange& one : declared) {
    if (one.what != Role::gradient && one.what != Role::parameter)
      throw UnsupportedError(
          fmt::format("strategy: exchanges of {}s are not built in", to_string(one.what)));
    if ((one.what == Role::gradient) != (one.start.phase == Phase::grad_ready))
      throw UnsupportedError(fmt::format(
          "strategy: {}s that start at {} are not built in; gradients start at {}",
          to_string(one.what), to_string(one.start.phase), to_string(Phase::grad_ready)));
    declared_.push_back({one, exchanges_of(exchanger.plan(), one)});
  }
}

Rank Step::rank() const { return exchanger_.group(0).rank(); }
int Step::ranks() const { return exchanger_.group(0).size(); }

void Step::move_to(std::int64_t step, int bucket) {
  if (step != slot_.step) skips_ = false;
  if (bucket < 0) slot_.counts = true;
  slot_.step = step;
  bucket_ = bucket;
}

bool Step::starts(int declared, Phase phase) const {
  return fires_at(declared_[static_cast<std::size_t>(declared)].sentence.start, phase, slot_.step);
}

bool Step::needs(int declared, Phase phase) const {
  const When& need = declared_[static_cast<std::size_t>(declared)].sentence.need;
  return slot_.step >= need.lag && fires_at(need, phase, slot_.step);
}

void Step::start_bucket(const Declared& one, int bucket) {
  const bool gradient = one.sentence.what == Role::gradient;
  const int exchange = one.exchanges[static_cast<std::size_t>(bucket)];
  // A gradient that does not go stays in a memory, a parameter stays what it is.
  if (!gradient &&
      !fires(exchanger_.plan().exchanges[static_cast<std::size_t>(exchange)].start, slot_.step))
    return;
  at::Tensor& message = (gradient ? *gradients_ : *values_).message(bucket);
  if (message.numel() > 0) exchanger_.start(exchange, message, slot_);
}

void Step::start(int declared) {
  Declared& one = declared_[static_cast<std::size_t>(declared)];
  if (one.sentence.what == Role::gradient) {
    if (gradients_) start_bucket(one, bucket_);
    return;
  }
  const at::NoGradGuard no_grad;
  if (!values_)
    values_ = std::make_unique<Buckets>(exchanger_.plan(), parameters_,
                                        std::vector<bool>(exchanger_.plan().grouping.size()));
  one.under_way = true;
  for (int bucket = 0; bucket < values_->count(); ++bucket) {
    for (const int i : values_->parameters_of(bucket))
      values_->place(i).copy_(parameters_[static_cast<std::size_t>(i)]);
    start_bucket(one, bucket);
  }
}

void Step::wait(int declared) {
  Declared& one = declared_[static_cast<std::size_t>(declared)];
  const bool skips = skips_ && one.sentence.what == Role::gradient;
  for (const int exchange : one.exchanges)
    skips ? exchanger_.take_back(exchange) : exchanger_.wait(exchange);
  if (!std::exchange(one.under_way, false)) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].detach().copy_(values_->place(static_cast<int>(i)));
}

}  // namespace thinwire
