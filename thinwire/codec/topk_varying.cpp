// SPDX-License-Identifier: Apache-2.0
// topk with another k in each step.
//   warmup=W: Lin et al., "Deep Gradient Compression" (2018). Of W steps in four equal stages,
//   stage
//     e from 0 on has the ratio r^((e + 1) / 5): for r = 0.001 that is 0.25, 0.063, 0.016, 0.004.
//   ratio=adaptive: Ruan, Yan, Xiao, Song, Xu, "Adaptive Top-K in SGD" (2022), arXiv 2210.13532.
//     The loss of a step is the energy of what is not sent, and the best division of a budget
//     between steps has one bound tau on magnitudes. So send |x[i]| >= tau, where tau is the mean
//     over ranks of the k-th magnitude in the first step, then
//     tau *= exp(0.1 (spent / allowed - 1)),   allowed = what is left of the budget / steps left
//     The budget is of `window` steps with mean k values each and rank; what is left goes on to the
//     next window. A step sends k / 10 to 10 k values, and never so many that a later one of its
//     window could not have its k / 10. What all ranks have spent stands in their payloads, so they
//     keep one tau without a message.
// Departs from the paper, whose exact form is for a known horizon and contraction: a window, and a
// bound that is steered rather than forecast.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/codec/sparse.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class WarmingTopK : public Codec {
 public:
  WarmingTopK(std::int64_t n, double ratio, std::int64_t steps)
      : n_(n), ratio_(ratio), steps_(steps), payload_("topk", n, false) {}
  CodecTraits traits() const override { return {.fixed_size = false, .contraction = share(1)}; }
  Bytes max_bytes() const override { return payload_.max_bytes(); }

  Payload encode(const Tensor& x, const Slot& slot) override {
    const Tensor values = x.to(at::kFloat);
    if (n_ == 0) return payload_.pack({}, chosen_);
    const std::int64_t stage = slot.step >= steps_ ? 4 : slot.step * 4 / steps_;
    select_.select(floats_of(values), k_of(std::pow(ratio_, (stage + 1) / 5.0)), chosen_);
    return payload_.pack(floats_of(values), chosen_);
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    payload_.decode(payload, out, mode);
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (!payload_.residual_of_last(sent, x, out)) Codec::residual(x, sent, out);
  }
  void forget(const Payload& sent, Tensor& x) const override {
    if (!payload_.forget_last(sent, x)) Codec::forget(sent, x);
  }

 private:
  std::int64_t k_of(double ratio) const {
    if (n_ == 0) return 0;
    const auto wanted = static_cast<std::int64_t>(ratio * static_cast<double>(n_));
    return std::clamp<std::int64_t>(wanted, 1, n_);
  }
  double share(double most) const {
    return n_ == 0 ? most : static_cast<double>(k_of(ratio_)) / static_cast<double>(n_);
  }
  std::int64_t n_;
  double ratio_;
  std::int64_t steps_;
  SparsePayload payload_;
  kernels::TopK select_;
  kernels::Selection chosen_;
};

class AdaptiveTopK : public Codec {
 public:
  AdaptiveTopK(std::span<const TensorDesc> tensors, std::int64_t k, std::int64_t window)
      : n_(value_count(tensors)),
        k_(k),
        window_(window),
        name_(tensors.empty() ? "" : tensors[0].name),
        payload_("topk", n_, false) {}
  CodecTraits traits() const override { return {.fixed_size = false}; }
  Bytes max_bytes() const override { return payload_.max_bytes(); }

  Payload encode(const Tensor& x, const Slot& slot) override {
    const Tensor values = x.to(at::kFloat);
    if (n_ == 0) return payload_.pack({}, chosen_);
    const auto span = floats_of(values);
    const std::int64_t steps_left = left_steps_ > 0 ? left_steps_ : window_;
    const double budget = left_values_ / slot.ranks + (left_steps_ > 0 ? 0.0 : whole_window());
    const double later = static_cast<double>(least() * (steps_left - 1));
    const std::int64_t most =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(budget - later + 1e-6)),
                                 least(), std::min(n_, 10 * k_));
    if (tau_ <= 0) {
      select_.select(span, std::min(k_, most), chosen_);
    } else {
      const std::int64_t reached = kernels::count_at_least(span, static_cast<float>(tau_));
      if (reached >= least() && reached <= most)
        kernels::select_at_least(span, static_cast<float>(tau_), chosen_);
      else
        select_.select(span, std::clamp(reached, least(), most), chosen_);
    }
    return payload_.pack(span, chosen_);
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    payload_.decode(payload, out, mode);
  }
  void combine(std::span<const Payload> payloads, int divisor, Tensor& out) override {
    Codec::combine(payloads, divisor, out);
    const auto ranks = static_cast<double>(payloads.size());
    double spent = 0, smallest = 0;
    for (const Payload& payload : payloads) {
      spent += static_cast<double>(payload_.count(payload));
      if (tau_ <= 0) smallest += least_of(payload) / ranks;
    }
    if (left_steps_ <= 0) {
      left_steps_ = window_;
      left_values_ += ranks * whole_window();
    }
    const double allowed = left_values_ / static_cast<double>(left_steps_);
    left_values_ -= spent;
    --left_steps_;
    if (tau_ <= 0)
      tau_ = smallest;
    else if (allowed > 0)
      tau_ *= std::exp(0.1 * std::clamp(spent / allowed - 1, -1.0, 9.0));
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (!payload_.residual_of_last(sent, x, out)) Codec::residual(x, sent, out);
  }
  void forget(const Payload& sent, Tensor& x) const override {
    if (!payload_.forget_last(sent, x)) Codec::forget(sent, x);
  }
  void visit_state(StateVisitor& visitor) override {
    Tensor kept;
    if (tau_ > 0) {
      kept = at::empty({3}, at::kDouble);
      auto* to = kept.data_ptr<double>();
      to[0] = tau_;
      to[1] = left_values_;
      to[2] = static_cast<double>(left_steps_);
    }
    visitor.tensor("bound/" + name_, kept);
    if (!kept.defined() || kept.numel() != 3 || kept.scalar_type() != at::kDouble) return;
    const auto* from = kept.const_data_ptr<double>();
    tau_ = from[0];
    left_values_ = from[1];
    left_steps_ = static_cast<std::int64_t>(from[2]);
  }

 private:
  std::int64_t least() const { return n_ == 0 ? 0 : std::max<std::int64_t>(1, k_ / 10); }
  double whole_window() const { return static_cast<double>(k_ * window_); }
  double least_of(const Payload& payload) const {
    kernels::Selection got;
    payload_.unpack(payload, got);
    double least = got.values.empty() ? 0 : std::abs(got.values[0]);
    for (const float value : got.values) least = std::min<double>(least, std::abs(value));
    return least;
  }

  std::int64_t n_, k_, window_;
  std::string name_;
  SparsePayload payload_;
  kernels::TopK select_;
  kernels::Selection chosen_;
  double tau_ = 0;          ///< 0: none yet; the same on all ranks, as what follows
  double left_values_ = 0;  ///< of all ranks together, of this window
  std::int64_t left_steps_ = 0;
};

}  // namespace

std::unique_ptr<Codec> make_varying_topk(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  const std::int64_t n = value_count(tensors);
  if (reader.text("ratio", "") == "adaptive") {
    const double mean = reader.number("mean", 0.01);
    const std::int64_t window = reader.integer("window", 100);
    reader.finish();
    if (!(mean > 0 && mean <= 1))
      throw ConfigError(fmt::format("topk: mean must be in (0, 1], got {}", mean));
    if (window < 1)
      throw ConfigError(fmt::format("topk: window must be at least 1, got {}", window));
    const auto k = static_cast<std::int64_t>(mean * static_cast<double>(n));
    return std::make_unique<AdaptiveTopK>(tensors, n == 0 ? 0 : std::clamp<std::int64_t>(k, 1, n),
                                          window);
  }
  const double ratio = reader.number("ratio", 0.001);
  const std::int64_t warmup = reader.integer("warmup", 1);
  reader.finish();
  if (!(ratio > 0 && ratio <= 1))
    throw ConfigError(fmt::format("topk: ratio must be in (0, 1], got {}", ratio));
  if (warmup < 1)
    throw ConfigError(fmt::format("topk: warmup must be at least 1 step, got {}", warmup));
  return std::make_unique<WarmingTopK>(n, ratio, warmup);
}

}  // namespace thinwire
