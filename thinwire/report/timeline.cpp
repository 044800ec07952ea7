// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

namespace thinwire {

std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_s < b.begin_s; });
  std::vector<Interval> out;
  for (const Interval& next : intervals) {
    if (next.end_s <= next.begin_s) continue;
    if (!out.empty() && next.begin_s <= out.back().end_s)
      out.back().end_s = std::max(out.back().end_s, next.end_s);
    else
      out.push_back(next);
  }
  return out;
}

std::vector<Interval> without(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> out;
  for (Interval rest : a) {
    for (const Interval& hole : b) {
      if (hole.end_s <= rest.begin_s || hole.begin_s >= rest.end_s) continue;
      if (hole.begin_s > rest.begin_s) out.push_back({rest.begin_s, hole.begin_s});
      rest.begin_s = hole.end_s;
    }
    if (rest.begin_s < rest.end_s) out.push_back(rest);
  }
  return out;
}

Seconds total(const std::vector<Interval>& intervals) {
  Seconds sum = 0;
  for (const Interval& one : intervals) sum += one.end_s - one.begin_s;
  return sum;
}

std::vector<StepTimes> step_times(const Trace& trace) {
  struct Parts {
    std::vector<Interval> compute, exchange;
    Bytes bytes = 0;
    Seconds begin_s = 0, end_s = 0;
    bool any = false;
  };
  std::map<std::pair<std::int64_t, Rank>, Parts> steps;
  for (const Event& event : trace) {
    Parts& parts = steps[{event.step, event.rank}];
    const bool exchange = event.kind == OpKind::exchange;
    (exchange ? parts.exchange : parts.compute).push_back({event.begin_s, event.end_s});
    if (exchange) parts.bytes += event.bytes;
    parts.begin_s = parts.any ? std::min(parts.begin_s, event.begin_s) : event.begin_s;
    parts.end_s = parts.any ? std::max(parts.end_s, event.end_s) : event.end_s;
    parts.any = true;
  }
  std::vector<StepTimes> out;
  for (auto& [key, parts] : steps) {
    const auto compute = united(std::move(parts.compute)),
               exchange = united(std::move(parts.exchange));
    StepTimes times{
        .rank = key.second, .step = key.first, .begin_s = parts.begin_s, .end_s = parts.end_s};
    times.compute_s = total(compute);
    times.exchange_s = total(exchange);
    times.exposed = without(exchange, compute);
    times.exposed_s = total(times.exposed);
    times.bytes = parts.bytes;
    out.push_back(std::move(times));
  }
  return out;
}

}  // namespace thinwire
