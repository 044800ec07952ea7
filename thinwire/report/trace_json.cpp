// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

namespace thinwire {
namespace {

constexpr std::array<std::string_view, 4> kKinds = {"forward", "backward", "update", "exchange"};

OpKind kind_from(const std::string& text, std::string_view source) {
  const auto it = std::find(kKinds.begin(), kKinds.end(), text);
  if (it == kKinds.end())
    throw DataError(fmt::format("{}: kind must be forward, backward, update or exchange, got '{}'",
                                source, text));
  return static_cast<OpKind>(it - kKinds.begin());
}

TraceClock clock_from(const std::string& text, std::string_view source) {
  for (const TraceClock clock : {TraceClock::measured, TraceClock::virtual_time})
    if (text == to_string(clock)) return clock;
  throw DataError(fmt::format("{}: clock must be measured or virtual, got '{}'", source, text));
}

Json event_json(const Event& event) {
  return {{"rank", event.rank},   {"step", event.step},       {"kind", to_string(event.kind)},
          {"index", event.index}, {"begin_s", event.begin_s}, {"end_s", event.end_s},
          {"bytes", event.bytes}};
}

Event event_from(const Json& json, std::string_view source) {
  Event event;
  event.rank = get<Rank>(json, "rank", source);
  event.step = get<std::int64_t>(json, "step", source);
  event.kind = kind_from(get<std::string>(json, "kind", source), source);
  event.index = get<int>(json, "index", source);
  event.begin_s = get<double>(json, "begin_s", source);
  event.end_s = get<double>(json, "end_s", source);
  event.bytes = get<Bytes>(json, "bytes", source);
  if (!std::isfinite(event.begin_s) || !std::isfinite(event.end_s) || event.end_s < event.begin_s)
    throw DataError(fmt::format("{}: an event must end after it begins, got {} s to {} s", source,
                                event.begin_s, event.end_s));
  return event;
}

TraceFile from_chrome(const Json& json, std::string_view source) {
  TraceFile trace;
  if (const auto other = json.find("otherData"); other != json.end() && other->contains("clock"))
    trace.clock = clock_from(get<std::string>(*other, "clock", source), source);
  const Json& events = json.at("traceEvents");
  if (!events.is_array())
    throw DataError(fmt::format("{}: 'traceEvents' must be an array", source));
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::string place = fmt::format("{}, event {}", source, i);
    if (get<std::string>(events[i], "ph", place) != "X") continue;
    if (!events[i].contains("args")) throw DataError(place + ": 'args' is missing");
    trace.events.push_back(event_from(events[i].at("args"), place));
  }
  return trace;
}

TraceFile from_lines(std::string_view text, std::string_view source) {
  TraceFile trace;
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = text.substr(begin, end - begin);
    const bool whole = end < text.size();
    begin = end + 1;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", source, line);
    if (!whole && !Json::accept(content)) break;  // the writer died in this line
    const Json json = parse_json(content, place);
    if (!json.is_object())
      throw DataError(fmt::format("{}: an event must be an object, got {}", place, json.dump()));
    if (json.contains("trace"))
      trace.clock = clock_from(get<std::string>(json, "clock", place), place);
    else
      trace.events.push_back(event_from(json, place));
  }
  return trace;
}

// The first lane of its rank that is free when the event begins; Chrome's tracks cannot hold
// overlaps.
std::vector<int> exchange_lanes(const Trace& events) {
  std::vector<std::size_t> order(events.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return events[a].begin_s < events[b].begin_s;
  });
  std::map<Rank, std::vector<Seconds>> busy_until;
  std::vector<int> lanes(events.size(), 0);
  for (const std::size_t i : order) {
    if (events[i].kind != OpKind::exchange) continue;
    auto& ends = busy_until[events[i].rank];
    auto lane = std::find_if(ends.begin(), ends.end(),
                             [&](Seconds end_s) { return end_s <= events[i].begin_s; });
    if (lane == ends.end()) lane = ends.insert(ends.end(), 0);
    *lane = events[i].end_s;
    lanes[i] = static_cast<int>(lane - ends.begin()) + 1;
  }
  return lanes;
}

Json label(const char* what, Rank rank, int lane, const std::string& text) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", text}}}};
}

}  // namespace

std::string_view to_string(TraceClock clock) {
  return clock == TraceClock::measured ? "measured" : "virtual";
}

std::string trace_header_line(TraceClock clock) {
  return Json{{"trace", 1}, {"clock", to_string(clock)}}.dump() + '\n';
}

std::string trace_lines(const Trace& trace) {
  std::string text;
  for (const Event& event : trace) text += event_json(event).dump() + '\n';
  return text;
}

std::string to_json_lines(const TraceFile& trace) {
  return trace_header_line(trace.clock) + trace_lines(trace.events);
}

std::string to_chrome_json(const TraceFile& trace, const EventName& name) {
  const auto lanes = exchange_lanes(trace.events);
  Json events = Json::array();
  std::map<std::pair<Rank, int>, bool> labelled;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    const int lane = lanes[i];
    if (labelled.try_emplace({event.rank, -1}).second)
      events.push_back(label("process_name", event.rank, 0, fmt::format("rank {}", event.rank)));
    if (labelled.try_emplace({event.rank, lane}).second)
      events.push_back(
          label("thread_name", event.rank, lane,
                lane == 0 ? std::string("compute") : fmt::format("exchanges {}", lane)));
    const std::string text = name ? name(event)
                             : event.index == kWhole
                                 ? std::string(to_string(event.kind))
                                 : fmt::format("{} {}", to_string(event.kind), event.index);
    events.push_back({{"name", text},
                      {"cat", to_string(event.kind)},
                      {"ph", "X"},
                      {"pid", event.rank},
                      {"tid", lane},
                      {"ts", event.begin_s * 1e6},
                      {"dur", (event.end_s - event.begin_s) * 1e6},
                      {"args", event_json(event)}});
  }
  const Json whole = {{"traceEvents", std::move(events)},
                      {"displayTimeUnit", "ms"},
                      {"otherData", {{"trace", 1}, {"clock", to_string(trace.clock)}}}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceFile trace_from_text(std::string_view text, std::string_view source) {
  // A Chrome file is one value; JSON lines of more than one line are not.
  const std::string_view first_line = text.substr(0, text.find('\n'));
  if (first_line.find("\"traceEvents\"") != std::string_view::npos || !Json::accept(first_line)) {
    if (Json::accept(text)) {
      const Json json = parse_json(text, source);
      if (json.is_object() && json.contains("traceEvents")) return from_chrome(json, source);
    }
  }
  return from_lines(text, source);
}

TraceFile read_trace(const std::string& path) { return trace_from_text(read_text(path), path); }

void write_trace(const std::string& path, const TraceFile& trace, const EventName& name) {
  write_text(path, path.ends_with(".json") ? to_chrome_json(trace, name) : to_json_lines(trace));
}

}  // namespace thinwire
