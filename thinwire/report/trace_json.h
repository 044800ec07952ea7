// SPDX-License-Identifier: Apache-2.0
// Traces as files. Simulated and measured traces have one form and one reader; units stand in the
// field names.
//   JSON lines:  {"trace": 1, "clock": "measured"}                      first line, once
//                {"rank": 0, "step": 3, "kind": "exchange", "index": 1, "begin_s": 0.41, "end_s":
//                0.43, "bytes": 800}
//   Chrome:      {"traceEvents": [...], "otherData": {"clock": "virtual"}}, for chrome://tracing
//   and Perfetto, which
//                want microseconds; the exact seconds stand in each event's args.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "thinwire/core/json.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

/// Whose seconds: of the simulator, or of the machine.
enum class TraceClock : std::uint8_t { measured, virtual_time };
std::string_view to_string(TraceClock clock);  ///< "measured", "virtual"

struct TraceFile {
  Trace events;
  TraceClock clock = TraceClock::measured;
};

/// Names an event for people, for example "exchange 3"; the default uses kind and index.
using EventName = std::function<std::string(const Event&)>;

std::string trace_header_line(TraceClock clock);  ///< with its line end
std::string trace_lines(const Trace& trace);      ///< one line an event, each ended
std::string to_json_lines(const TraceFile& trace);
/// One process a rank, one thread for compute and as many for exchanges as overlap.
std::string to_chrome_json(const TraceFile& trace, const EventName& name = {});

/// Either form, told apart by its content. DataError that names source and line for anything else,
/// for an event that ends before it begins and for numbers that are not finite.
TraceFile trace_from_text(std::string_view text, std::string_view source);
TraceFile read_trace(const std::string& path);  ///< ConfigError if the file cannot be read
/// ConfigError if it cannot be written; ".json" gives the Chrome form, anything else JSON lines.
void write_trace(const std::string& path, const TraceFile& trace, const EventName& name = {});

}  // namespace thinwire
