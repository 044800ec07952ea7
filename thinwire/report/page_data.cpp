// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/page_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "thinwire/report/timeline.h"

namespace thinwire {
namespace {

constexpr std::size_t kPoints = 500;    // more than a curve on a screen can show
constexpr std::size_t kSteps = 12;      // steps offered in the timeline
constexpr std::size_t kEvents = 30000;  // in all steps together: keeps the page near a megabyte

using Field = std::optional<double> MetricsRow::*;

Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

// A mean over rows that have the value; null where one of them is not a number, absent where none
// has it.
class Mean {
 public:
  void add(const std::optional<double>& value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  void put(Json& point, const char* key) {
    if (count_ > 0) point[key] = number(sum_ / count_);
    sum_ = 0;
    count_ = 0;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

void put_position(Json& point, const MetricsRow& row) {
  point["step"] = row.step;
  if (row.time_s) point["time_s"] = number(*row.time_s);
  if (row.wire_bytes) point["bytes"] = *row.wire_bytes;
}

/// Rows that have any of the fields, in at most kPoints means of neighbours, each at its last row's
/// position.
Json curve(const std::vector<MetricsRow>& rows,
           const std::vector<std::pair<const char*, Field>>& fields, bool thin) {
  std::vector<const MetricsRow*> known;
  for (const MetricsRow& row : rows)
    if (std::any_of(fields.begin(), fields.end(),
                    [&](const auto& f) { return (row.*f.second).has_value(); }))
      known.push_back(&row);
  const std::size_t stride =
      thin ? std::max<std::size_t>(1, (known.size() + kPoints - 1) / kPoints) : 1;
  Json points = Json::array();
  for (std::size_t begin = 0; begin < known.size(); begin += stride) {
    const std::size_t end = std::min(begin + stride, known.size());
    Json point = Json::object();
    put_position(point, *known[end - 1]);
    for (const auto& [key, field] : fields) {
      Mean mean;
      for (std::size_t i = begin; i < end; ++i) mean.add(known[i]->*field);
      mean.put(point, key);
    }
    points.push_back(std::move(point));
  }
  return points;
}

struct ChosenStep {
  std::int64_t step = 0;
  std::string what;  // "typical", "slowest" or empty
};

std::vector<ChosenStep> choose_steps(const std::vector<StepTimes>& times) {
  std::map<std::int64_t, Seconds> longest;  // of any rank
  for (const StepTimes& one : times) {
    Seconds& seconds = longest[one.step];
    seconds = std::max(seconds, one.end_s - one.begin_s);
  }
  std::vector<std::pair<Seconds, std::int64_t>> by_time;
  for (const auto& [step, seconds] : longest) by_time.emplace_back(seconds, step);
  std::sort(by_time.begin(), by_time.end());
  const std::int64_t typical = by_time[by_time.size() / 2].second, slowest = by_time.back().second;
  std::set<std::int64_t> chosen = {typical, slowest};
  std::vector<std::int64_t> all;
  for (const auto& [step, seconds] : longest) all.push_back(step);
  const std::size_t wanted = std::min(kSteps, all.size());
  for (std::size_t i = 0; i < wanted; ++i)
    chosen.insert(all[wanted == 1 ? 0 : i * (all.size() - 1) / (wanted - 1)]);
  std::vector<ChosenStep> out;
  for (const std::int64_t step : chosen)
    out.push_back({step, step == typical ? "typical" : step == slowest ? "slowest" : ""});
  // The typical one comes first: it is the one that stays if there are too many events.
  std::stable_sort(out.begin(), out.end(), [](const ChosenStep& a, const ChosenStep& b) {
    return (a.what == "typical") > (b.what == "typical");
  });
  return out;
}

Json rank_json(const StepTimes& times, const std::vector<const Event*>& events) {
  Json exposed = Json::array();
  for (const Interval& one : times.exposed)
    exposed.push_back({one.begin_s - times.begin_s, one.end_s - times.begin_s});
  Json list = Json::array();
  for (const Event* event : events)
    list.push_back({to_string(event->kind), event->index, event->begin_s - times.begin_s,
                    event->end_s - times.begin_s, event->bytes});
  return {{"rank", times.rank},
          {"begin_s", times.begin_s},
          {"step_s", times.end_s - times.begin_s},
          {"compute_s", times.compute_s},
          {"exposed_s", times.exposed_s},
          {"bytes", times.bytes},
          {"exposed", std::move(exposed)},
          {"events", std::move(list)}};
}

Json trace_data(const TraceFile& trace) {
  if (trace.events.empty()) return nullptr;
  const auto times = step_times(trace.events);
  std::map<std::pair<std::int64_t, Rank>, std::vector<const Event*>> events;
  for (const Event& event : trace.events) events[{event.step, event.rank}].push_back(&event);
  Json steps = Json::array();
  std::size_t used = 0;
  for (const ChosenStep& chosen : choose_steps(times)) {
    Json ranks = Json::array();
    std::size_t count = 0;
    for (const StepTimes& one : times) {
      if (one.step != chosen.step) continue;
      const auto& list = events.at({one.step, one.rank});
      count += list.size();
      ranks.push_back(rank_json(one, list));
    }
    if (!steps.empty() && used + count > kEvents) continue;
    used += count;
    steps.push_back({{"step", chosen.step}, {"what", chosen.what}, {"ranks", std::move(ranks)}});
  }
  std::sort(steps.begin(), steps.end(),
            [](const Json& a, const Json& b) { return a.at("step") < b.at("step"); });
  return {{"clock", to_string(trace.clock)}, {"steps", std::move(steps)}};
}

}  // namespace

Json page_data(std::span<const RunData> runs) {
  Json all = Json::array();
  for (const RunData& run : runs) {
    const auto& rows = run.metrics;
    all.push_back(
        {{"name", run.info.name},
         {"train",
          curve(rows, {{"loss", &MetricsRow::loss}, {"accuracy", &MetricsRow::accuracy}}, true)},
         {"test",
          curve(rows, {{"loss", &MetricsRow::test_loss}, {"accuracy", &MetricsRow::test_accuracy}},
                false)},
         {"speed", curve(rows,
                         {{"step_s", &MetricsRow::step_s},
                          {"compute_s", &MetricsRow::compute_s},
                          {"exposed_s", &MetricsRow::exposed_s}},
                         true)},
         {"trace", trace_data(run.trace)}});
  }
  return {{"runs", std::move(all)}};
}

}  // namespace thinwire
