// SPDX-License-Identifier: Apache-2.0
// What a few repeated measurements say: means with 95 % intervals of Student's t.
#pragma once
#include <optional>
#include <span>

namespace thinwire {

/// A mean and where it lies with 95 % confidence, were the values drawn from a normal distribution.
/// One value alone says nothing of its spread: the interval is then unbounded.
struct MeanInterval {
  double mean = 0, lower = 0, upper = 0;
  int count = 0;
};

/// Nothing for no values; DataError for a value that is no finite number.
std::optional<MeanInterval> mean_interval(std::span<const double> values);

/// With 95 % confidence |t| is at most this, for `freedom` >= 1 degrees of freedom.
double student_t95(int freedom);

}  // namespace thinwire
