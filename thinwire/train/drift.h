// SPDX-License-Identifier: Apache-2.0
// Whether training still takes the time that was expected, judged by windows of steps. No torch.
#pragma once
#include <cstdint>

#include "thinwire/core/types.h"

namespace thinwire {

/// Fed with the median step of one window after the other. Only what is off by more than a fifth,
/// in two windows in a row, counts: single steps, and noise of a fifth, change nothing. Each time
/// that a look at the causes has led to nothing, twice as many windows are asked for.
class Drift {
 public:
  /// The steps from now on should take `step_s`. `calm`: nothing could be done about the last
  /// alarm; otherwise a plan has been put in place, and two windows are enough again.
  void expect(Seconds step_s, bool calm);
  /// True: time to look at the causes.
  bool add(Seconds step_s);
  Seconds expected_s() const { return expected_s_; }
  /// How many steps make a window: two seconds of them, at least 5 and at most 50.
  std::int64_t window() const;

 private:
  Seconds expected_s_ = 0;
  int off_ = 0, needed_ = 2;
};

}  // namespace thinwire
