// SPDX-License-Identifier: Apache-2.0
// The median of measurements: one slow step, or one quick one, does not show in it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace thinwire {

/// Of an even number the upper one of the middle two; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace thinwire
