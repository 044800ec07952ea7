// SPDX-License-Identifier: Apache-2.0
// The sentence at the top of a report.
#include <fmt/format.h>

#include <cmath>

#include "thinwire/core/text.h"
#include "thinwire/report/figures.h"
#include "thinwire/report/html.h"

namespace thinwire {
namespace {

std::optional<std::int64_t> diverged_at(const RunData& run) {
  for (const MetricsRow& row : run.metrics)
    if (row.loss && !std::isfinite(*row.loss)) return row.step;
  return std::nullopt;
}

std::string result_words(const RunSummary& known, const RunData& run) {
  if (known.test_accuracy) return format_percent(*known.test_accuracy) + " test accuracy";
  if (known.test_loss) return fmt::format("a test loss of {:.4f}", *known.test_loss);
  for (auto row = run.metrics.rbegin(); row != run.metrics.rend(); ++row)
    if (row->loss) return fmt::format("a loss of {:.4f}", *row->loss);
  return "";
}

std::string outcome(const RunData& run, const RunSummary& known) {
  const std::string steps = known.steps ? fmt::format("{} steps", format_count(*known.steps)) : "";
  const std::string time = known.train_s ? format_duration(*known.train_s) : "";
  std::string extent = steps;
  if (!time.empty()) extent += (extent.empty() ? "" : " and ") + time;
  if (const auto step = diverged_at(run))
    return fmt::format("Diverged: from step {} on, the loss is not a number.", format_count(*step));
  const std::string result = result_words(known, run);
  const std::string& status = run.info.status;
  if (status == "finished") {
    if (result.empty()) return fmt::format("Finished{}.", extent.empty() ? "" : " after " + extent);
    return fmt::format("Reached {}{}.", result, extent.empty() ? "" : " in " + extent);
  }
  const std::string word = status == "running"  ? "Not finished"
                           : status == "failed" ? "Failed"
                                                : "Interrupted";
  std::string text =
      word + (extent.empty() ? "" : (status == "running" ? ": " : " after ") + extent);
  if (!result.empty()) text += fmt::format(", at {}", result);
  return text + ".";
}

std::string cost(const RunData& run, const RunSummary& known) {
  if (!known.step_s || *known.step_s <= 0) return "";
  const RunSetup& setup = run.info.setup;
  std::string text = fmt::format(" A step takes {} on {} rank{}", format_seconds(*known.step_s),
                                 setup.ranks, setup.ranks == 1 ? "" : "s");
  if (!setup.transport.empty() && setup.ranks > 1) text += " over " + setup.transport;
  if (!known.exposed_s || setup.ranks == 1) return text + ".";
  const double share = *known.exposed_s / *known.step_s;
  text += fmt::format("; {} of it ({:.0f} %) waits for the network",
                      format_seconds(*known.exposed_s), 100 * share);
  if (share < 0.02) return text + ", next to nothing.";
  if (share >= 0.995) return text + ".";
  return text + fmt::format(", so that a free network would make it at most {:.2f} times as fast.",
                            1 / (1 - share));
}

std::string against(const RunSummary& first, const RunSummary& other, const std::string& name) {
  std::vector<std::string> parts;
  const auto ratio = [&](const std::optional<double>& a, const std::optional<double>& b,
                         const char* words) {
    if (a && b && *a > 0) parts.push_back(fmt::format("{} {:.2f}", words, *b / *a));
  };
  ratio(first.step_s, other.step_s, "step time");
  ratio(first.exposed_s, other.exposed_s, "exposed communication");
  ratio(first.wire_bytes_per_step, other.wire_bytes_per_step, "bytes sent");
  std::string text = fmt::format("\n{}:", name);
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? " " : ", ") + parts[i];
  if (!parts.empty()) text += " times the first run's";
  if (first.test_accuracy && other.test_accuracy) {
    const double points = 100 * (*other.test_accuracy - *first.test_accuracy);
    text += parts.empty() ? " " : "; ";
    text += std::abs(points) < 0.05
                ? "equal test accuracy"
                : fmt::format("test accuracy {:.1f} points {}", std::abs(points),
                              points > 0 ? "higher" : "lower");
  } else if (parts.empty()) {
    text += " nothing to compare yet";
  }
  return text + ".";
}

}  // namespace

std::string verdict(std::span<const RunData> runs) {
  if (runs.empty()) throw ConfigError("report: at least one run is needed, got 0");
  const RunSummary first = known_summary(runs[0]);
  std::string text = outcome(runs[0], first) + cost(runs[0], first);
  if (runs.size() == 1) return text;
  text = runs[0].info.name + ": " + text;
  for (const RunData& run : runs.subspan(1))
    text += against(first, known_summary(run), run.info.name);
  return text;
}

}  // namespace thinwire
