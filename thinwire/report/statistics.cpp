// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/statistics.h"

#include <array>
#include <cmath>
#include <limits>

#include "thinwire/core/error.h"

namespace thinwire {

double student_t95(int freedom) {
  if (freedom < 1)
    throw ConfigError("student_t95: freedom must be at least 1, got " + std::to_string(freedom));
  // The 0.975 quantiles; from 11 on the expansion below is good to 2e-4.
  constexpr std::array<double, 10> kQuantiles{12.7062, 4.3027, 3.1824, 2.7764, 2.5706,
                                              2.4469,  2.3646, 2.3060, 2.2622, 2.2281};
  if (freedom <= static_cast<int>(kQuantiles.size()))
    return kQuantiles[static_cast<std::size_t>(freedom - 1)];
  // Cornish and Fisher: the normal quantile z, corrected in powers of 1 / freedom.
  constexpr double z = 1.959964;
  constexpr double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const double v = freedom;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

std::optional<MeanInterval> mean_interval(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) throw DataError("mean_interval: a value is no finite number");
    sum += value;
  }
  const auto n = static_cast<double>(values.size());
  const double mean = sum / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const int count = static_cast<int>(values.size());
  double half = std::numeric_limits<double>::infinity();
  if (count > 1) half = student_t95(count - 1) * std::sqrt(squares / (n - 1) / n);
  return MeanInterval{.mean = mean, .lower = mean - half, .upper = mean + half, .count = count};
}

}  // namespace thinwire
