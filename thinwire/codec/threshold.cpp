// SPDX-License-Identifier: Apache-2.0
// All values whose magnitude reaches a bound, with their positions. The bound is found anew every
// `life` steps, so that most steps have no selection to make.
// Fang, Fu, Yang, Hsieh, "RedSync: Reducing Synchronization Traffic for Distributed Deep Learning"
// (2018), arXiv 1808.04357: trimmed, binary_search, values=mean. Gupta et al., "Training
// Recommender Systems at Scale: Communication-Efficient Model and Data Parallelism" (2020), arXiv
// 2010.08899: exact, life.
// Update rule: send x[i] where |x[i]| >= bound. Every `life` steps, for about k values,
//   exact: the k largest, and the least of their magnitudes is the bound
//   trimmed: of those above mean |x| + ratio (max |x| - mean |x|), for the first ratio of 0.8, 0.6,
//     0.4, ... that leaves k, the k largest
//   binary_search: those above such a mean for a ratio halved until k to 2 k are left
// values=mean: only positive values in even steps and only negative ones in odd steps, each as
// their mean.
// Bytes: 4 a value and its position, about log2(n/k) + 2 bits; values=mean: 8 and the positions.
// Passes over memory: one in most steps, which compares; a refresh takes two for the mean and the
// greatest, and one for each ratio.
// Departs from the papers: the search goes on until its interval is 0.02 long, for at 0.2 it may
// end with fewer than k/2; each bucket has a bound, not each layer.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_threshold(PayloadRegistry& registry) {
  registry.add(
      "threshold",
      [](const Spec& spec, std::span<const TensorDesc> tensors) -> std::optional<Bytes> {
        SpecReader reader(spec);
        selected_count(reader, spec.name, 0.001, value_count(tensors));
        return std::nullopt;
      },
      "the values above a bound, which lives for some steps {method=exact, trimmed or "
      "binary_search; ratio=0.001, or count; life=1; values=own, or mean; or value=the bound}");
}

}  // namespace thinwire
#else
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/neg.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "thinwire/codec/kernels/thresholds.h"
#include "thinwire/codec/sparse.h"

namespace thinwire {
namespace {

enum class BoundMethod { value, exact, trimmed, binary_search };

struct ThresholdOptions {
  BoundMethod method = BoundMethod::exact;
  std::int64_t k = 0, life = 1;
  double epsilon = 0.02;
  float value = 0;
  bool mean = false;
};

class Threshold : public Codec {
 public:
  Threshold(const ThresholdOptions& options, std::span<const TensorDesc> tensors)
      : options_(options),
        n_(value_count(tensors)),
        name_(tensors.empty() ? "" : tensors[0].name),
        payload_("threshold", n_, options.mean) {}

  CodecTraits traits() const override { return {.fixed_size = false}; }
  Bytes max_bytes() const override { return payload_.max_bytes(); }

  Payload encode(const Tensor& x, const Slot& slot) override {
    const Tensor values = x.to(at::kFloat);
    Tensor side = values;
    if (options_.mean) side = slot.step % 2 == 0 ? values.clamp_min(0) : values.neg().clamp_min(0);
    choose(floats_of(side), slot);
    if (!options_.mean) return payload_.pack(floats_of(values), chosen_);
    drop_zeros();
    double sum = 0;
    for (const float value : chosen_.values) sum += value;
    const double mean =
        chosen_.values.empty() ? 0 : sum / static_cast<double>(chosen_.values.size());
    return payload_.pack(floats_of(values), chosen_,
                         static_cast<float>(slot.step % 2 == 0 ? mean : -mean));
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
  void visit_state(StateVisitor& visitor) override {
    for (const bool odd : {false, true}) {
      float& bound = bounds_[odd ? 1 : 0];
      Tensor kept = bound > 0 ? at::full({1}, bound, at::kFloat) : Tensor();
      visitor.own(fmt::format("bound{}/{}", odd ? "_odd" : "", name_), kept);
      if (kept.defined() && kept.numel() == 1) bound = kept.item().toFloat();
    }
  }

 private:
  void choose(std::span<const float> x, const Slot& slot) {
    if (x.empty()) return;
    if (options_.method == BoundMethod::value)
      return kernels::select_at_least(x, options_.value, chosen_);
    // Positive and negative values have a bound each.
    float& bound = bounds_[options_.mean ? static_cast<std::size_t>(slot.step % 2) : 0];
    const std::int64_t firing = options_.mean ? slot.step / 2 : slot.step;
    if (bound > 0 && firing % options_.life != 0)
      return kernels::select_at_least(x, bound, chosen_);
    bound = refresh(x);
    // Nothing to measure by: the next step looks again.
    if (!std::isfinite(bound)) bound = 0;
  }
  /// Selects, and says above which magnitude.
  float refresh(std::span<const float> x) {
    if (options_.method == BoundMethod::binary_search) {
      const auto found = kernels::searched_bound(x, options_.k, options_.epsilon);
      kernels::select_at_least(x, found.threshold, chosen_);
      return found.threshold;
    }
    if (options_.method == BoundMethod::exact) {
      select_.select(x, options_.k, chosen_);
    } else {
      const auto found = kernels::trimmed_bound(x, options_.k, options_.epsilon);
      kernels::select_at_least(x, found.threshold, trimmed_);
      select_.select(trimmed_.values, options_.k, chosen_);
      for (std::uint32_t& index : chosen_.indices) index = trimmed_.indices[index];
    }
    float least = chosen_.values.empty() ? 0 : std::abs(chosen_.values[0]);
    for (const float value : chosen_.values) least = std::min(least, std::abs(value));
    return least;
  }
  /// Values of the other sign, where there were not enough of this one.
  void drop_zeros() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < chosen_.values.size(); ++i) {
      if (!(chosen_.values[i] > 0)) continue;
      chosen_.values[kept] = chosen_.values[i];
      chosen_.indices[kept++] = chosen_.indices[i];
    }
    chosen_.values.resize(kept);
    chosen_.indices.resize(kept);
  }

  ThresholdOptions options_;
  std::int64_t n_;
  std::string name_;
  SparsePayload payload_;
  kernels::TopK select_;
  kernels::Selection chosen_, trimmed_;
  float bounds_[2] = {0, 0};  ///< 0: none yet
};

ThresholdOptions read_threshold(SpecReader& reader, std::int64_t n) {
  ThresholdOptions out;
  const double value = reader.number("value", -1);
  const std::string method = reader.text("method", value == -1 ? "exact" : "value");
  const std::string values = reader.text("values", "own");
  out.mean = values == "mean";
  if (!out.mean && values != "own")
    throw ConfigError(fmt::format("threshold: values must be own or mean, got '{}'", values));
  if (value != -1) {
    if (!(value > 0) || method != "value")
      throw ConfigError(fmt::format(
          "threshold: value must be above 0, and stands without a method, got {}", value));
    out.method = BoundMethod::value;
    out.value = static_cast<float>(value);
    return out;
  }
  const std::map<std::string, BoundMethod> methods{{"exact", BoundMethod::exact},
                                                   {"trimmed", BoundMethod::trimmed},
                                                   {"binary_search", BoundMethod::binary_search}};
  const auto found = methods.find(method);
  if (found == methods.end())
    throw ConfigError(
        fmt::format("threshold: method must be exact, trimmed or binary_search, got '{}'", method));
  out.method = found->second;
  out.k = selected_count(reader, "threshold", 0.001, n);
  out.life = reader.integer("life", 1);
  out.epsilon = reader.number("epsilon", out.method == BoundMethod::trimmed ? 0.2 : 0.02);
  if (out.life < 1)
    throw ConfigError(fmt::format("threshold: life must be at least 1, got {}", out.life));
  if (!(out.epsilon >= 1e-6 && out.epsilon <= 0.5))
    throw ConfigError(
        fmt::format("threshold: epsilon must be in [1e-6, 0.5], got {}", out.epsilon));
  return out;
}

}  // namespace

void register_threshold(CodecRegistry& registry) {
  registry.add("threshold", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const ThresholdOptions options = read_threshold(reader, value_count(tensors));
    reader.finish();
    return std::make_unique<Threshold>(options, tensors);
  });
}

}  // namespace thinwire
#endif
