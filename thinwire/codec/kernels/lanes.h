// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: the order in which memory is walked, and with it the order of sums in
// double. Four pages of 1024 floats are read side by side, since one stream of loads does not make
// full use of the memory. Element i is added to lane lane_of(i); at the end the lanes are added in
// pairs. Vector code of any width up to 8 can do exactly this.
#pragma once
#include <cstddef>

namespace thinwire::kernels {

inline constexpr std::size_t kPage = 1024;  // floats
inline constexpr std::size_t kStreams = 4;
inline constexpr std::size_t kLanesOfStream = 8;
inline constexpr std::size_t kLanes = kStreams * kLanesOfStream;

constexpr std::size_t lane_of(std::size_t i) {
  return i / kPage % kStreams * kLanesOfStream + i % kLanesOfStream;
}

/// Ends a sum: lanes j and j + 16 are added, then j and j + 8, and so on.
inline double fold_lanes(double (&lanes)[kLanes]) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace thinwire::kernels
