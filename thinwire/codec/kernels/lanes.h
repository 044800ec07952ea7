// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: the fixed order of sums in double. Element i is added to lane i % 16; at the
// end the lanes are added in pairs. Vector code of any width up to 16 can do exactly this.
#pragma once
#include <cstddef>

namespace thinwire::kernels {

inline constexpr std::size_t kLanes = 16;

/// Ends a sum: lanes j and j + 8 are added, then j and j + 4, and so on.
inline double fold_lanes(double (&lanes)[kLanes]) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace thinwire::kernels
