// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/thresholds.h"

#include <algorithm>
#include <cmath>

#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/codec/kernels/signs.h"

namespace thinwire::kernels {
namespace {

/// What ratios are measured on.
struct Scale {
  double mean = 0, most = 0;
  explicit Scale(std::span<const float> x)
      : mean(x.empty() ? 0 : sum_abs(x) / static_cast<double>(x.size())), most(max_abs(x)) {}
  bool usable() const { return std::isfinite(mean) && std::isfinite(most); }
  /// Rounding may put the mean of equal magnitudes above the greatest.
  float at(double ratio) const {
    return static_cast<float>(std::min(mean + ratio * (most - mean), most));
  }
};

Bound counted(std::span<const float> x, const Scale& scale, double ratio, int passes) {
  Bound out{.threshold = scale.at(ratio), .ratio = ratio, .passes = passes};
  out.count = count_at_least(x, out.threshold);
  return out;
}

Bound everything(std::span<const float> x, int passes) {
  return {.count = static_cast<std::int64_t>(x.size()), .passes = passes};
}

}  // namespace

Bound trimmed_bound(std::span<const float> x, std::int64_t k, double step) {
  const Scale scale(x);
  if (!scale.usable()) return everything(x, 0);
  int passes = 0;
  for (double ratio = 1 - step; ratio > -1e-9; ratio -= step) {
    const Bound bound = counted(x, scale, ratio, ++passes);
    if (bound.count >= k) return bound;
  }
  return everything(x, passes);
}

Bound searched_bound(std::span<const float> x, std::int64_t k, double epsilon) {
  const Scale scale(x);
  if (!scale.usable()) return everything(x, 0);
  double low = 0, high = 1;
  Bound bound = everything(x, 0);
  while (high - low > epsilon) {
    bound = counted(x, scale, (low + high) / 2, bound.passes + 1);
    if (bound.count > k && bound.count < 2 * k) break;
    (2 * bound.count < k ? high : low) = bound.ratio;
  }
  return bound;
}

}  // namespace thinwire::kernels
