// SPDX-License-Identifier: Apache-2.0
// Bounds on the magnitude above which about k of n elements lie, found by counting between the mean
// and the greatest magnitude: mean |x| + ratio (max |x| - mean |x|).
// Fang, Fu, Yang, Hsieh, "RedSync: Reducing Synchronization Traffic for Distributed Deep Learning"
// (2018), arXiv 1808.04357.
#pragma once
#include <cstdint>
#include <span>

namespace thinwire::kernels {

struct Bound {
  float threshold = 0;
  double ratio = 0;        ///< between the mean and the greatest magnitude
  std::int64_t count = 0;  ///< of elements with |x| >= threshold
  int passes = 0;          ///< over x in which elements were counted
};

/// The first of 1 - step, 1 - 2 step, ... that leaves at least k; 0 if none does.
Bound trimmed_bound(std::span<const float> x, std::int64_t k, double step);

/// Halves the interval until more than k and fewer than 2 k are left, or it is at most `epsilon`
/// long: then there may be fewer than k, and none at all.
Bound searched_bound(std::span<const float> x, std::int64_t k, double epsilon);

}  // namespace thinwire::kernels
