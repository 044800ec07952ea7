// SPDX-License-Identifier: Apache-2.0
// The figures of a report in words: computed once, shown in the page, in its tables and in
// `thinwire report --json`.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "thinwire/report/run_folder.h"

namespace thinwire {

enum class Better : std::uint8_t { neither, lower, higher };

/// One row of the comparison: one value a run, absent where that run does not know it.
struct Figure {
  std::string key;    ///< as in run.json
  std::string label;  ///< for people
  std::string hint;   ///< one sentence: what is counted
  Better better = Better::neither;
  std::vector<std::optional<double>> values;
  std::vector<std::string> texts;  ///< with units; "–" where absent
};

/// The summary, with what it lacks taken from the metrics: last test values, medians of step times,
/// bytes a step.
RunSummary known_summary(const RunData& run);
/// Rows that at least one run knows.
std::vector<Figure> figures(std::span<const RunData> runs);
/// Label and text of what was run, one text a run; rows that no run knows are left out.
struct Fact {
  std::string label;
  std::vector<std::string> texts;
};
std::vector<Fact> facts(std::span<const RunData> runs);

std::string format_percent(double fraction);   ///< 0.9137 -> "91.4 %"
std::string format_duration(Seconds seconds);  ///< "1 min 52 s"
std::string format_count(std::int64_t count);  ///< "1,234,567"

}  // namespace thinwire
