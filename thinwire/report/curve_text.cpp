// SPDX-License-Identifier: Apache-2.0
// Simulated curves for readers: tables, a section, an object.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/text.h"
#include "thinwire/report/curve.h"
#include "thinwire/report/experiment_text.h"

namespace thinwire {
namespace {

constexpr const char* kVirtual =
    "All times are virtual: computed from a model of ranks and links, none is measured.";

std::vector<std::string> curve_header(const CurveExperiment& experiment, const Curves& curves) {
  std::vector<std::string> out{experiment.x};
  for (const Curve& curve : curves.curves) out.push_back(curve.arm);
  return out;
}

std::vector<std::string> curve_row(const CurveExperiment& experiment, const Curves& curves,
                                   const std::string& name, std::size_t i) {
  std::vector<std::string> out{x_text(experiment, curves.xs[i])};
  for (const Curve& curve : curves.curves)
    out.push_back(value_text(name, curve.points[i].at(name)));
  return out;
}

std::string curve_table(const CurveExperiment& experiment, const Curves& curves,
                        const std::string& name) {
  std::vector<std::vector<std::string>> rows{curve_header(experiment, curves)};
  for (std::size_t i = 0; i < curves.xs.size(); ++i)
    rows.push_back(curve_row(experiment, curves, name, i));
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out = name + "\n";
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

std::string piped_options(const Arm& arm) {
  std::string text = options_text(arm);
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '\\');
  return text;
}

std::string curve_base_text(const CurveExperiment& experiment) {
  std::string out;
  for (const Setting& setting : experiment.base)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", setting.key, setting.value);
  return out;
}

}  // namespace

std::string value_text(std::string_view name, double value) {
  if (name.ends_with("_per_s")) return fmt::format("{:.4g}", value);
  if (name.ends_with("_s")) return format_seconds(value);
  if (name == "bytes" || name.ends_with("_bytes"))
    return format_bytes(static_cast<std::int64_t>(std::llround(value)));
  return fmt::format("{:.4g}", value);
}

std::string x_text(const CurveExperiment& experiment, double x) {
  const bool has_unit = experiment.x.ends_with("_s") || experiment.x.ends_with("_bytes");
  return has_unit ? value_text(experiment.x, x) : fmt::format("{:g}", x);
}

std::string text_outcome(const CurveExperiment& experiment, const Curves& curves) {
  std::string out =
      fmt::format("{}\nclaim: {}\n{}\n", experiment.title, experiment.claim, kVirtual);
  for (const std::string& name : experiment.shows) out += curve_table(experiment, curves, name);
  const Judgement judgement = judge(experiment, curves);
  out += judgement.sentence + '\n';
  for (const RuleResult& rule : judgement.rules)
    out += fmt::format("  {}: {}\n", word(rule.state), rule.sentence);
  return out;
}

std::string markdown_outcome(const CurveExperiment& experiment, const Curves& curves) {
  std::string out = fmt::format("### {}\n\n    {}\n\n{}\n\nClaim: {}\n\n", experiment.title,
                                curves.command, experiment.paper, experiment.claim);
  if (!experiment.departs.empty()) out += fmt::format("Here: {}\n\n", experiment.departs);
  out += kVirtual;
  if (const std::string base = curve_base_text(experiment); !base.empty())
    out += fmt::format(" Base: {}.", base);
  out += "\n\n";
  for (const Curve& curve : curves.curves) {
    const Arm& arm = experiment.arm(curve.arm);
    out += fmt::format("- `{}`: {}{}{}\n", arm.name, piped_options(arm),
                       arm.note.empty() ? "" : ": ", arm.note);
  }
  for (const std::string& name : experiment.shows) {
    const auto header = curve_header(experiment, curves);
    out += fmt::format("\n`{}`\n\n| {} |\n|{}\n", name, join(header, " | "), [&] {
      std::string dashes;
      for (std::size_t i = 0; i < header.size(); ++i) dashes += "---|";
      return dashes;
    }());
    for (std::size_t i = 0; i < curves.xs.size(); ++i)
      out += fmt::format("| {} |\n", join(curve_row(experiment, curves, name, i), " | "));
  }
  return out + markdown_verdict(judge(experiment, curves));
}

Json json_outcome(const CurveExperiment& experiment, const Curves& curves) {
  const Judgement judgement = judge(experiment, curves);
  Json rules = json_rules(experiment.rules, judgement), arms = Json::array();
  for (const Curve& curve : curves.curves) {
    Json points = Json::array();
    for (std::size_t i = 0; i < curves.xs.size(); ++i) {
      Json point = curve.points[i];
      point[experiment.x] = curves.xs[i];
      points.push_back(point);
    }
    arms.push_back({{"arm", curve.arm},
                    {"options", options_text(experiment.arm(curve.arm))},
                    {"points", points}});
  }
  return {{"experiment", experiment.name},
          {"title", experiment.title},
          {"claim", experiment.claim},
          {"kind", "simulated"},
          {"clock", "virtual"},
          {"quick", curves.quick},
          {"command", curves.command},
          {"x", experiment.x},
          {"verdict", word(judgement.shape)},
          {"why", judgement.sentence},
          {"rules", rules},
          {"arms", arms}};
}

}  // namespace thinwire
