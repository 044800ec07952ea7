// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/experiment_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "thinwire/core/text.h"

namespace thinwire {
namespace {

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ArmSummary summary_of(const Arm& arm, const std::string& control, const Measured& measured) {
  ArmSummary out{.arm = &arm};
  std::vector<double> steps;
  double of_bytes = 0;
  for (const ArmRun& run : measured.runs) {
    if (run.arm != arm.name) continue;
    out.diverged += run.status == ArmRun::Status::diverged;
    out.failed += run.status == ArmRun::Status::failed;
    if (run.status != ArmRun::Status::finished) continue;
    ++out.finished;
    out.test_accuracy += run.test_accuracy;
    out.test_loss += run.test_loss;
    out.bytes_per_step = run.bytes_per_step;
    steps.push_back(run.step_s);
    const ArmRun* of = measured.find(control, run.seed);
    if (!of || of->status != ArmRun::Status::finished) continue;
    of_bytes = of->bytes_per_step;
    if (control != arm.name) out.gains.push_back(100 * (run.test_accuracy - of->test_accuracy));
  }
  if (out.finished == 0) return out;
  out.test_accuracy /= out.finished;
  out.test_loss /= out.finished;
  out.step_s = middle_of(steps);
  out.gain = mean_interval(out.gains);
  if (out.bytes_per_step > 0 && of_bytes > 0) out.less = of_bytes / out.bytes_per_step;
  return out;
}

std::string gain_text(const ArmSummary& row) {
  if (!row.gain) return "";
  if (row.gain->count < 2) return fmt::format("{:+.2f}", row.gain->mean);
  return fmt::format("{:+.2f} [{:+.2f}, {:+.2f}]", row.gain->mean, row.gain->lower,
                     row.gain->upper);
}

std::string seeds_text(const ArmSummary& row) {
  std::string out = fmt::format("{}", row.finished);
  if (row.diverged) out += fmt::format(", {} diverged", row.diverged);
  if (row.failed) out += fmt::format(", {} failed", row.failed);
  return out;
}

/// One line of the table, as texts; columns as in kColumns.
std::vector<std::string> cells(const ArmSummary& row) {
  std::vector<std::string> out{row.arm->name, seeds_text(row)};
  if (row.finished == 0) {
    out.resize(7);
    return out;
  }
  out.push_back(fmt::format("{:.2f}", 100 * row.test_accuracy));
  out.push_back(gain_text(row));
  out.push_back(fmt::format("{:.4f}", row.test_loss));
  out.push_back(row.bytes_per_step > 0
                    ? format_bytes(static_cast<std::int64_t>(std::llround(row.bytes_per_step)))
                    : "0");
  out.push_back(row.less ? fmt::format("{:.4g}", *row.less) : "");
  return out;
}

std::string piped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '\\');
  return text;
}

std::vector<std::string> data_of(const Measured& measured) {
  std::vector<std::string> out;
  for (const ArmRun& run : measured.runs)
    if (!run.data.empty() && std::find(out.begin(), out.end(), run.data) == out.end())
      out.push_back(run.data);
  return out;
}

/// "4 ranks, batch 128, 200 steps, model cnn": of the control, else of the first run.
std::string setting_text(const Experiment& experiment, const Measured& measured) {
  if (measured.runs.empty()) return "";
  const ArmRun* run = &measured.runs.front();
  for (const ArmRun& one : measured.runs)
    if (one.arm == experiment.control) run = &one;
  const Json& c = run->configuration;
  if (!c.contains("ranks")) return "";
  return fmt::format("{} on {} ranks, batch {} of all together, {} steps, {}", c.value("model", ""),
                     c.value("ranks", 0), c.value("batch_size", 0), c.value("steps", 0),
                     c.value("optimizer", ""));
}

}  // namespace

std::string options_text(const Arm& arm) {
  std::string out;
  if (arm.accumulate > 1) out = fmt::format("one update for {} steps' samples", arm.accumulate);
  for (const Setting& setting : arm.settings)
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", setting.key, setting.value);
  return out.empty() ? "as base" : out;
}

std::vector<ArmSummary> summaries(const Experiment& experiment, const Measured& measured) {
  std::vector<ArmSummary> out;
  for (const Arm& arm : experiment.arms) {
    ArmSummary row = summary_of(arm, experiment.control, measured);
    if (row.finished + row.diverged + row.failed > 0) out.push_back(std::move(row));
  }
  return out;
}

std::vector<std::string> troubles(const Measured& measured) {
  std::vector<std::string> out;
  for (const ArmRun& run : measured.runs)
    if (run.status != ArmRun::Status::finished)
      out.push_back(
          fmt::format("{}, seed {}: {}: {}", run.arm, run.seed, word(run.status), run.why));
  return out;
}

std::string text_outcome(const Experiment& experiment, const Measured& measured) {
  std::vector<std::vector<std::string>> rows{{"arm", "seeds", "test %",
                                              "to " + experiment.control + ", points [95 %]",
                                              "test loss", "sent a step", "times less"}};
  for (const ArmSummary& row : summaries(experiment, measured)) rows.push_back(cells(row));
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out = fmt::format("{}\nclaim: {}\n", experiment.title, experiment.claim);
  for (const std::string& data : data_of(measured)) out += "data: " + data + '\n';
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  for (const std::string& text : troubles(measured)) out += text + '\n';
  const Judgement judgement = judge(experiment, measured);
  out += judgement.sentence + '\n';
  for (const RuleResult& rule : judgement.rules)
    out += fmt::format("  {}: {}\n", word(rule.state), rule.sentence);
  return out;
}

std::string markdown_verdict(const Judgement& judgement) {
  std::string out = fmt::format("\nVerdict: **{}**{}.\n\n", word(judgement.shape),
                                judgement.sentence.substr(word(judgement.shape).size()));
  for (const RuleResult& rule : judgement.rules)
    out += fmt::format("- {}: {}\n", word(rule.state), rule.sentence);
  return out;
}

std::string markdown_outcome(const Experiment& experiment, const Measured& measured) {
  std::string out = fmt::format("### {}\n\n", experiment.title);
  if (!measured.command.empty()) out += fmt::format("    {}\n\n", measured.command);
  out += fmt::format("{}\n\nClaim: {}\n\n", experiment.paper, experiment.claim);
  if (!experiment.departs.empty()) out += fmt::format("Here: {}\n\n", experiment.departs);
  if (const std::string text = setting_text(experiment, measured); !text.empty())
    out += fmt::format("Setting: {}. Data: {}.{}\n\n", text, join(data_of(measured), "; "),
                       measured.quick ? " The quick form: fewer steps or samples." : "");
  out += fmt::format(
      "| arm | options | seeds | test accuracy % | to {}, points [95 %] | test loss | sent a step "
      "and rank | times less |\n|---|---|---|---|---|---|---|---|\n",
      experiment.control);
  for (const ArmSummary& row : summaries(experiment, measured)) {
    const auto texts = cells(row);
    out += fmt::format("| {} | {} |", texts[0], piped(options_text(*row.arm)));
    for (std::size_t i = 1; i < texts.size(); ++i) out += " " + texts[i] + " |";
    out += '\n';
  }
  for (const std::string& text : troubles(measured)) out += "\n- " + text;
  return out + markdown_verdict(judge(experiment, measured));
}

Json json_outcome(const Experiment& experiment, const Measured& measured) {
  const Judgement judgement = judge(experiment, measured);
  Json rules = json_rules(experiment.rules, judgement), arms = Json::array();
  for (const ArmSummary& row : summaries(experiment, measured)) {
    Json one{{"arm", row.arm->name},     {"options", options_text(*row.arm)},
             {"finished", row.finished}, {"diverged", row.diverged},
             {"failed", row.failed},     {"test_accuracy", nullptr},
             {"test_loss", nullptr},     {"bytes_per_step", nullptr},
             {"step_s", nullptr},        {"gain", nullptr}};
    if (row.finished > 0) {
      one["test_accuracy"] = row.test_accuracy;
      one["test_loss"] = row.test_loss;
      one["bytes_per_step"] = row.bytes_per_step;
      one["step_s"] = row.step_s;
    }
    if (row.gain && row.gain->count > 1)
      one["gain"] = {{"points", row.gain->mean},
                     {"lower", row.gain->lower},
                     {"upper", row.gain->upper},
                     {"seeds", row.gain->count}};
    arms.push_back(one);
  }
  return {{"experiment", experiment.name},
          {"title", experiment.title},
          {"claim", experiment.claim},
          {"quick", measured.quick},
          {"command", measured.command},
          {"data", data_of(measured)},
          {"verdict", word(judgement.shape)},
          {"why", judgement.sentence},
          {"rules", rules},
          {"arms", arms},
          {"runs", to_json(measured).at("runs")}};
}

}  // namespace thinwire
