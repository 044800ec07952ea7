// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/drift.h"

#include <algorithm>
#include <cmath>

namespace thinwire {
namespace {

constexpr double kFifth = 0.2;
constexpr int kFewWindows = 2, kManyWindows = 64;  // windows
constexpr Seconds kWindow = 2;
constexpr double kLeastSteps = 5, kMostSteps = 50;  // steps

}  // namespace

void Drift::expect(Seconds step_s, bool calm) {
  expected_s_ = step_s;
  needed_ = calm ? std::min(2 * needed_, kManyWindows) : kFewWindows;
  off_ = 0;
}

bool Drift::add(Seconds step_s) {
  const bool off = step_s > (1 + kFifth) * expected_s_ || (1 + kFifth) * step_s < expected_s_;
  off_ = off ? off_ + 1 : 0;
  return off_ >= needed_;
}

std::int64_t Drift::window() const {
  const double steps = expected_s_ > 0 ? std::round(kWindow / expected_s_) : kMostSteps;
  return static_cast<std::int64_t>(std::clamp(steps, kLeastSteps, kMostSteps));
}

}  // namespace thinwire
