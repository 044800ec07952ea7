// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "thinwire/core/text.h"

namespace thinwire {
namespace {

constexpr std::string_view kAbsent = "–";

template <class T>
std::optional<double> median_of(const std::vector<MetricsRow>& rows,
                                std::optional<T> MetricsRow::* field) {
  std::vector<double> values;
  for (const MetricsRow& row : rows)
    if (const auto& value = row.*field; value && std::isfinite(static_cast<double>(*value)))
      values.push_back(static_cast<double>(*value));
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
std::optional<T> last_of(const std::vector<MetricsRow>& rows,
                         std::optional<T> MetricsRow::* field) {
  for (auto row = rows.rbegin(); row != rows.rend(); ++row)
    if (const auto& value = (*row).*field) return value;
  return std::nullopt;
}

template <class T>
void fill(std::optional<T>& known, const std::optional<T>& other) {
  if (!known) known = other;
}

template <class T>
std::optional<double> as_number(const std::optional<T>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

struct FigureRule {
  const char *key, *label, *hint;
  Better better;
  std::function<std::optional<double>(const RunSummary&)> value;
  std::function<std::string(double)> text;
};

std::string bytes_text(double bytes) { return format_bytes(std::llround(bytes)); }
std::string count_text(double count) { return format_count(std::llround(count)); }

const std::vector<FigureRule>& figure_rules() {
  using S = RunSummary;
  static const std::vector<FigureRule> rules = {
      {"test_accuracy", "Test accuracy",
       "Share of the test samples classified rightly, over all ranks.", Better::higher,
       [](const S& s) { return s.test_accuracy; }, format_percent},
      {"test_loss", "Test loss", "Mean over the test samples.", Better::lower,
       [](const S& s) { return s.test_loss; }, [](double x) { return fmt::format("{:.4f}", x); }},
      {"step_s", "Step time", "One update, median.", Better::lower,
       [](const S& s) { return s.step_s; }, format_seconds},
      {"predicted_step_s", "Predicted step", "By the plan, before the run.", Better::neither,
       [](const S& s) { return s.predicted_step_s; }, format_seconds},
      {"compute_s", "Compute", "Forward, backward and update within a step.", Better::neither,
       [](const S& s) { return s.compute_s; }, format_seconds},
      {"exposed_s", "Exposed communication",
       "The part of a step in which a rank only waits for the network.", Better::lower,
       [](const S& s) { return s.exposed_s; }, format_seconds},
      {"predicted_exposed_s", "Predicted exposed", "By the plan, before the run.", Better::neither,
       [](const S& s) { return s.predicted_exposed_s; }, format_seconds},
      {"wire_bytes_per_step", "Sent per step", "By one rank, headers included.", Better::lower,
       [](const S& s) { return s.wire_bytes_per_step; }, bytes_text},
      {"predicted_bytes_per_step", "Predicted sent per step", "By the plan, headers apart.",
       Better::neither, [](const S& s) { return s.predicted_bytes_per_step; }, bytes_text},
      {"samples_per_s", "Throughput", "Samples a second, all ranks together.", Better::higher,
       [](const S& s) { return s.samples_per_s; }, [](double x) { return count_text(x) + " /s"; }},
      {"train_s", "Training time", "Evaluation and saving apart.", Better::lower,
       [](const S& s) { return s.train_s; }, format_duration},
      {"steps", "Steps", "Updates done.", Better::neither,
       [](const S& s) { return as_number(s.steps); }, count_text},
      {"samples", "Samples", "Seen in training, all ranks together.", Better::neither,
       [](const S& s) { return as_number(s.samples); }, count_text},
      {"peak_memory_bytes", "Peak memory", "Of one rank.", Better::lower,
       [](const S& s) { return as_number(s.peak_memory_bytes); }, bytes_text},
  };
  return rules;
}

std::string number_or_nothing(std::int64_t value) { return value == 0 ? "" : format_count(value); }

}  // namespace

std::string format_percent(double fraction) {
  const double percent = 100 * fraction;
  return fmt::format("{:.{}f} %", percent, std::abs(percent) >= 99.95 || percent == 0 ? 0 : 1);
}

std::string format_duration(Seconds seconds) {
  if (!std::isfinite(seconds) || seconds < 60) return format_seconds(seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

RunSummary known_summary(const RunData& run) {
  RunSummary known = run.info.summary;
  const auto& rows = run.metrics;
  if (rows.empty()) return known;
  fill(known.test_accuracy, last_of(rows, &MetricsRow::test_accuracy));
  fill(known.test_loss, last_of(rows, &MetricsRow::test_loss));
  fill(known.train_s, last_of(rows, &MetricsRow::time_s));
  fill(known.steps, std::optional(rows.back().step));
  fill(known.step_s, median_of(rows, &MetricsRow::step_s));
  fill(known.compute_s, median_of(rows, &MetricsRow::compute_s));
  fill(known.exposed_s, median_of(rows, &MetricsRow::exposed_s));
  fill(known.samples_per_s, median_of(rows, &MetricsRow::samples_per_s));
  if (const auto sent = last_of(rows, &MetricsRow::wire_bytes); sent && rows.back().step > 0)
    fill(known.wire_bytes_per_step,
         std::optional(static_cast<double>(*sent) / static_cast<double>(rows.back().step)));
  return known;
}

std::vector<Figure> figures(std::span<const RunData> runs) {
  std::vector<RunSummary> summaries;
  for (const RunData& run : runs) summaries.push_back(known_summary(run));
  std::vector<Figure> out;
  for (const FigureRule& rule : figure_rules()) {
    Figure figure{.key = rule.key, .label = rule.label, .hint = rule.hint, .better = rule.better};
    for (const RunSummary& summary : summaries) {
      figure.values.push_back(rule.value(summary));
      figure.texts.push_back(figure.values.back() ? rule.text(*figure.values.back())
                                                  : std::string(kAbsent));
    }
    if (std::any_of(figure.values.begin(), figure.values.end(),
                    [](const auto& v) { return v.has_value(); }))
      out.push_back(std::move(figure));
  }
  return out;
}

std::vector<Fact> facts(std::span<const RunData> runs) {
  using Text = std::function<std::string(const RunInfo&)>;
  static const std::vector<std::pair<const char*, Text>> rules = {
      {"Model", [](const RunInfo& i) { return i.setup.model; }},
      {"Parameters", [](const RunInfo& i) { return number_or_nothing(i.setup.parameters); }},
      {"Data", [](const RunInfo& i) { return i.setup.data; }},
      {"Global batch", [](const RunInfo& i) { return number_or_nothing(i.setup.batch_size); }},
      {"Ranks", [](const RunInfo& i) { return number_or_nothing(i.setup.ranks); }},
      {"Transport", [](const RunInfo& i) { return i.setup.transport; }},
      {"Congestion control", [](const RunInfo& i) { return i.setup.congestion_control; }},
      {"Grouping", [](const RunInfo& i) { return i.setup.grouping; }},
      {"Form", [](const RunInfo& i) { return i.setup.form; }},
      {"Algorithm", [](const RunInfo& i) { return i.setup.algorithm; }},
      {"Hosts", [](const RunInfo& i) { return join(i.setup.hosts, ", "); }},
      {"Started", [](const RunInfo& i) { return i.started_at; }},
      {"Status", [](const RunInfo& i) { return i.status; }},
  };
  std::vector<Fact> out;
  for (const auto& [label, text] : rules) {
    Fact fact{.label = label};
    bool any = false;
    for (const RunData& run : runs) {
      fact.texts.push_back(text(run.info));
      any = any || !fact.texts.back().empty();
      if (fact.texts.back().empty()) fact.texts.back() = kAbsent;
    }
    if (any) out.push_back(std::move(fact));
  }
  return out;
}

}  // namespace thinwire
