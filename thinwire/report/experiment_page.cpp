// SPDX-License-Identifier: Apache-2.0
// The page of an experiment: the claim beside what was measured, and one drawing, made here, so
// that it needs no script.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/text.h"
#include "thinwire/core/version.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/page_frame.h"

namespace thinwire {
namespace {

/// Points to the right of the control, on a drawing of fixed width.
struct Axis {
  double least = -1, most = 1;
  static constexpr double kLeft = 190, kRight = 820, kWidth = 1000;
  double x(double points) const {
    return kLeft + (kRight - kLeft) * (std::clamp(points, least, most) - least) / (most - least);
  }
};

/// Wide enough for every seed; an interval of few seeds may be far wider and is cut off, so that
/// the rest can be told apart.
Axis axis_of(const std::vector<ArmSummary>& rows) {
  Axis axis;
  for (const ArmSummary& row : rows)
    for (const double gain : row.gains) {
      axis.least = std::min(axis.least, gain);
      axis.most = std::max(axis.most, gain);
    }
  const double pad = 0.15 * (axis.most - axis.least);
  return {.least = axis.least - pad, .most = axis.most + pad};
}

double tick_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 8)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (span / (factor * power) <= 8) return factor * power;
  return 10 * power;
}

std::string ticks(const Axis& axis, double bottom) {
  std::string out;
  const double every = tick_step(axis.most - axis.least);
  for (double at = std::ceil(axis.least / every) * every; at <= axis.most; at += every) {
    const double x = axis.x(at);
    const bool zero = std::abs(at) < every / 1000;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"20\" y2=\"{1:.1f}\" style=\"stroke:var(--{2})\"/>"
        "<text x=\"{0:.1f}\" y=\"12\" text-anchor=\"middle\">{3}</text>\n",
        x, bottom, zero ? "ink" : "grid",
        zero ? std::string("0") : fmt::format("{:+g}", std::round(at * 1e6) / 1e6));
  }
  return out;
}

std::string drawn_row(const ArmSummary& row, const Axis& axis, double y, std::size_t number) {
  const std::string colour = fmt::format("var(--run{})", number % 6);
  std::string out = fmt::format("<text class=\"name\" x=\"0\" y=\"{:.1f}\">{}</text>\n", y + 4,
                                escaped(row.arm->name));
  std::string said = row.diverged ? "diverged" : "";
  if (row.gain) {
    if (row.gain->count > 1)
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
          "style=\"stroke:{3};stroke-width:3\"/>\n",
          axis.x(row.gain->lower), axis.x(row.gain->upper), y, colour);
    for (const double gain : row.gains)
      out += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" style=\"fill:none;stroke:{}\"/>\n",
          axis.x(gain), y, colour);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" style=\"fill:{}\"/>\n",
                       axis.x(row.gain->mean), y, colour);
    said = fmt::format("{:+.2f}", row.gain->mean);
    if (row.less) said += fmt::format(", {:.3g} times less sent", *row.less);
  } else if (row.finished > 0) {
    said = fmt::format("{:.2f} %", 100 * row.test_accuracy);
  }
  return out + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", Axis::kRight + 14, y + 4,
                           escaped(said));
}

std::string drawing(const Experiment& experiment, const std::vector<ArmSummary>& rows) {
  if (rows.empty()) return "";
  const Axis axis = axis_of(rows);
  const double height = 34 + 28 * static_cast<double>(rows.size());
  std::string out = fmt::format(
      "<section>\n<h2>Difference to {0}</h2>\n<p class=\"note\">Test accuracy in points at the "
      "same "
      "seed: rings are seeds, the dot is their mean, the bar its 95 % interval, cut off at the "
      "drawing's edge.</p>\n<div class=\"timeline\"><svg viewBox=\"0 0 {1} {2}\" role=\"img\" "
      "aria-label=\"Difference of each arm to {0}; the table below has the numbers\">\n",
      escaped(experiment.control), Axis::kWidth, height);
  out += ticks(axis, height - 10);
  for (std::size_t i = 0; i < rows.size(); ++i)
    out += drawn_row(rows[i], axis, 40 + 28 * static_cast<double>(i), i);
  return out + "</svg></div>\n</section>\n";
}

std::string list(const std::vector<std::string>& texts) {
  std::string out = "<ul>\n";
  for (const std::string& text : texts) out += "<li>" + text + "</li>\n";
  return out + "</ul>\n";
}

std::string table(const Experiment& experiment, const std::vector<ArmSummary>& rows) {
  std::string out = fmt::format(
      "<section>\n<h2>What was measured</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Arms\"><table><thead><tr><th>arm</th><th>options</th><th>seeds</th><th>test "
      "accuracy</th><th>to {}, points</th><th>95 %</th><th>test loss</th><th>sent a step and "
      "rank</th></tr></thead><tbody>\n",
      escaped(experiment.control));
  for (const ArmSummary& row : rows) {
    std::string seeds = fmt::format("{}", row.finished);
    if (row.diverged) seeds += fmt::format(", {} diverged", row.diverged);
    if (row.failed) seeds += fmt::format(", {} failed", row.failed);
    out += fmt::format(
        "<tr title=\"{}\"><th scope=\"row\">{}</th><td><code>{}</code></td><td>{}</td>",
        escaped(row.arm->note), escaped(row.arm->name), escaped(options_text(*row.arm)), seeds);
    if (row.finished > 0) {
      const bool interval = row.gain && row.gain->count > 1;
      out += fmt::format(
          "<td>{:.2f} %</td><td>{}</td><td>{}</td><td>{:.4f}</td><td>{}</td>",
          100 * row.test_accuracy, row.gain ? fmt::format("{:+.2f}", row.gain->mean) : "",
          interval ? fmt::format("{:+.2f} to {:+.2f}", row.gain->lower, row.gain->upper) : "",
          row.test_loss, format_bytes(static_cast<std::int64_t>(row.bytes_per_step)));
    } else {
      out += "<td></td><td></td><td></td><td></td><td></td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n</section>\n";
}

}  // namespace

std::string html_outcome(const Experiment& experiment, const Measured& measured) {
  const Judgement judgement = judge(experiment, measured);
  const auto rows = summaries(experiment, measured);
  std::vector<std::string> rules;
  for (const RuleResult& rule : judgement.rules)
    rules.push_back(fmt::format("<b>{}</b>: {}", word(rule.state), escaped(rule.sentence)));
  std::string out = fmt::format(
      "<header>\n<p class=\"mark\"><b>thinwire</b><span>experiment</span></p>\n<h1>{}</h1>\n<div "
      "class=\"verdict\" id=\"verdict\"><p>{}</p></div>\n</header>\n<main>\n",
      escaped(experiment.title), escaped(judgement.sentence));
  std::vector<std::string> wrong;
  for (const std::string& text : troubles(measured)) wrong.push_back(escaped(text));
  if (!wrong.empty())
    out += "<section class=\"problem\" role=\"note\">\n" + list(wrong) + "</section>\n";
  out += fmt::format("<section>\n<h2>The claim</h2>\n<p>{}</p>\n<p class=\"note\">{}</p>\n",
                     escaped(experiment.claim), escaped(experiment.paper));
  if (!experiment.departs.empty())
    out += fmt::format("<p>Here: {}</p>\n", escaped(experiment.departs));
  out += "<h3>Rules</h3>\n" + list(rules) + "</section>\n";
  out += drawing(experiment, rows) + table(experiment, rows);
  out += fmt::format(
      "<section>\n<h2>What ran</h2>\n<pre>{}</pre>\n<p class=\"note\">{}Bytes are what one rank "
      "sends for the samples of one step of the control, headers apart. Runs, configurations and "
      "curves stand in the folder of this page.</p>\n</section>\n</main>\n<footer><p>Written by "
      "thinwire {}. This file needs no network.</p></footer>\n",
      escaped(measured.command),
      measured.quick ? "The quick form: fewer steps, samples or seeds. " : "", kVersion);
  return html_page(escaped(experiment.title) + " – thinwire experiment", out, nullptr);
}

}  // namespace thinwire
