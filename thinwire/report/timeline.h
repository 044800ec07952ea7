// SPDX-License-Identifier: Apache-2.0
// Figures read off a trace: how long a step took, how much of it was compute, how much was exposed
// communication.
#pragma once
#include <cstdint>
#include <vector>

#include "thinwire/plan/trace.h"

namespace thinwire {

struct Interval {
  Seconds begin_s = 0, end_s = 0;
  bool operator==(const Interval&) const = default;
};

/// One step on one rank.
struct StepTimes {
  Rank rank = 0;
  std::int64_t step = 0;
  Seconds begin_s = 0, end_s = 0;  ///< of its first and last event
  Seconds compute_s = 0;           ///< covered by forward, backward or update
  Seconds exchange_s = 0;          ///< covered by at least one exchange
  Seconds exposed_s = 0;           ///< covered by an exchange and by no compute
  Bytes bytes = 0;                 ///< sent in exchanges
  std::vector<Interval> exposed;   ///< in order, disjoint
};

/// Sorted by step, then rank. The trace may be in any order.
std::vector<StepTimes> step_times(const Trace& trace);

/// Disjoint intervals in order that cover the same points; touching ones are joined.
std::vector<Interval> united(std::vector<Interval> intervals);
/// The points of `a` outside `b`; both as from united().
std::vector<Interval> without(const std::vector<Interval>& a, const std::vector<Interval>& b);
Seconds total(const std::vector<Interval>& intervals);

}  // namespace thinwire
