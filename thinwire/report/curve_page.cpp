// SPDX-License-Identifier: Apache-2.0
// The page of simulated curves: the claim, a drawing of each value, tables. Drawn here, so that it
// needs no script.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/version.h"
#include "thinwire/report/curve.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/page_frame.h"

namespace thinwire {
namespace {

constexpr double kPageWidth = 1000, kPageHeight = 360, kPlotLeft = 90, kPlotRight = 780,
                 kPlotTop = 16, kPlotBottom = 320;

/// One axis: by logarithm where values are above 0 and span more than a decade.
struct Scale {
  double least = 0, most = 1, from = 0, to = 1;
  bool logarithmic = false;
  double place(double value) const {
    const auto at = [&](double v) { return logarithmic ? std::log10(v) : v; };
    const double span = at(most) - at(least);
    return from + (to - from) * (span > 0 ? (at(value) - at(least)) / span : 0.5);
  }
  std::vector<double> marks() const {
    std::vector<double> out;
    if (!logarithmic) {
      const double span = most - least, power = std::pow(10, std::floor(std::log10(span / 5)));
      const double every = span / power > 20 ? 5 * power : span / power > 10 ? 2 * power : power;
      for (double at = std::ceil(least / every) * every; at <= most * (1 + 1e-12); at += every)
        out.push_back(at);
      return out;
    }
    const double decades = std::log10(most / least);
    for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10)
      for (const double factor : {1.0, 2.0, 5.0})
        if ((factor == 1 || decades < 3) && factor * power >= least * (1 - 1e-12) &&
            factor * power <= most * (1 + 1e-12))
          out.push_back(factor * power);
    return out;
  }
};

Scale scale_of(double least, double most, double from, double to) {
  Scale out{.least = least, .most = most, .from = from, .to = to};
  out.logarithmic = least > 0 && most > 10 * least;
  if (!out.logarithmic) out.least = std::min(0.0, least);
  if (out.most <= out.least) out.most = out.least + 1;
  return out;
}

std::string grid_lines(const CurveExperiment& experiment, const Curves& curves, const Scale& x,
                       const Scale& y, const std::string& name) {
  std::string out;
  for (const double at : y.marks())
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" style=\"stroke:var(--grid)\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kPlotLeft, kPlotRight, y.place(at), kPlotLeft - 8, y.place(at) + 4,
        escaped(value_text(name, at)));
  for (const double at : curves.xs)
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
        "style=\"stroke:var(--grid)\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x.place(at), kPlotTop, kPlotBottom, kPlotBottom + 18, escaped(x_text(experiment, at)));
  return out + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kPlotRight,
                           kPlotBottom + 34, escaped(experiment.x));
}

struct Ending {
  double y = 0;
  std::size_t number = 0;
};

std::string drawn_curve(const Curves& curves, std::size_t number, const std::string& name,
                        const Scale& x, const Scale& y) {
  std::string points, dots;
  const std::string colour = fmt::format("var(--run{})", number % 6);
  for (std::size_t i = 0; i < curves.xs.size(); ++i) {
    const double px = x.place(curves.xs[i]);
    const double py = y.place(curves.curves[number].points[i].at(name));
    points += fmt::format("{:.1f},{:.1f} ", px, py);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" style=\"fill:{}\"/>", px, py,
                        colour);
  }
  return fmt::format("<polyline points=\"{}\" style=\"fill:none;stroke:{};stroke-width:2{}\"/>{}\n",
                     points, colour, number >= 6 ? ";stroke-dasharray:6 4" : "", dots);
}

/// Names beside the ends of their curves, moved apart where they would cover each other.
std::string drawn_names(const Curves& curves, const std::string& name, const Scale& y) {
  std::vector<Ending> ends;
  for (std::size_t n = 0; n < curves.curves.size(); ++n)
    ends.push_back({y.place(curves.curves[n].points.back().at(name)), n});
  std::sort(ends.begin(), ends.end(), [](const Ending& a, const Ending& b) { return a.y < b.y; });
  constexpr double kLine = 17;
  for (std::size_t i = 1; i < ends.size(); ++i)
    ends[i].y = std::max(ends[i].y, ends[i - 1].y + kLine);
  double limit = kPageHeight - 8;
  for (std::size_t i = ends.size(); i-- > 0; limit -= kLine) ends[i].y = std::min(ends[i].y, limit);
  std::string out;
  for (const Ending& end : ends)
    out += fmt::format(
        "<circle cx=\"{}\" cy=\"{:.1f}\" r=\"4\" style=\"fill:var(--run{})\"/><text class=\"name\" "
        "x=\"{}\" y=\"{:.1f}\">{}</text>\n",
        kPlotRight + 14, end.y, end.number % 6, kPlotRight + 24, end.y + 4,
        escaped(curves.curves[end.number].arm));
  return out;
}

std::string curve_drawing(const CurveExperiment& experiment, const Curves& curves,
                          const std::string& name) {
  double least = curves.curves[0].points[0].at(name), most = least;
  for (const Curve& curve : curves.curves)
    for (const PointValues& point : curve.points) {
      least = std::min(least, point.at(name));
      most = std::max(most, point.at(name));
    }
  const Scale x = scale_of(curves.xs.front(), curves.xs.back(), kPlotLeft, kPlotRight);
  const Scale y = scale_of(least, most, kPlotBottom, kPlotTop);
  std::string out = fmt::format(
      "<div class=\"timeline scroll\"><svg style=\"min-width:640px\" viewBox=\"0 0 {} {}\" "
      "role=\"img\" aria-label=\"{} by {}; the "
      "table below has the numbers\">\n",
      kPageWidth, kPageHeight, escaped(name), escaped(experiment.x));
  out += grid_lines(experiment, curves, x, y, name);
  for (std::size_t n = 0; n < curves.curves.size(); ++n) out += drawn_curve(curves, n, name, x, y);
  return out + drawn_names(curves, name, y) + "</svg></div>\n";
}

std::string html_table(const CurveExperiment& experiment, const Curves& curves,
                       const std::string& name) {
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>"
      "<th>{}</th>",
      escaped(name), escaped(experiment.x));
  for (const Curve& curve : curves.curves) out += "<th>" + escaped(curve.arm) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < curves.xs.size(); ++i) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(x_text(experiment, curves.xs[i])));
    for (const Curve& curve : curves.curves)
      out += "<td>" + escaped(value_text(name, curve.points[i].at(name))) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string arms_list(const CurveExperiment& experiment, const Curves& curves) {
  std::string out = "<ul>\n";
  for (const Curve& curve : curves.curves) {
    const Arm& arm = experiment.arm(curve.arm);
    out += fmt::format("<li>{}: <code>{}</code>{}{}</li>\n", escaped(arm.name),
                       escaped(options_text(arm)), arm.note.empty() ? "" : ": ", escaped(arm.note));
  }
  return out + "</ul>\n";
}

}  // namespace

std::string html_outcome(const CurveExperiment& experiment, const Curves& curves) {
  const Judgement judgement = judge(experiment, curves);
  std::string out = fmt::format(
      "<header>\n<p class=\"mark\"><b>thinwire</b><span>experiment in virtual time</span></p>\n"
      "<h1>{}</h1>\n<div class=\"verdict\" id=\"verdict\"><p>{}</p></div>\n</header>\n<main>\n"
      "<section>\n<h2>The claim</h2>\n<p>{}</p>\n<p class=\"note\">{}</p>\n",
      escaped(experiment.title), escaped(judgement.sentence), escaped(experiment.claim),
      escaped(experiment.paper));
  if (!experiment.departs.empty())
    out += fmt::format("<p>Here: {}</p>\n", escaped(experiment.departs));
  out += "<h3>Rules</h3>\n<ul>\n";
  for (const RuleResult& rule : judgement.rules)
    out += fmt::format("<li><b>{}</b>: {}</li>\n", word(rule.state), escaped(rule.sentence));
  out += "</ul>\n</section>\n";
  for (const std::string& name : experiment.shows)
    out += fmt::format(
        "<section>\n<h2>{}</h2>\n<p class=\"note\">Virtual time and computed "
        "bytes; nothing here is measured.</p>\n{}{}</section>\n",
        escaped(name), curve_drawing(experiment, curves, name),
        html_table(experiment, curves, name));
  out += fmt::format("<section>\n<h2>What was simulated</h2>\n<pre>{}</pre>\n{}",
                     escaped(curves.command), arms_list(experiment, curves));
  std::string base;
  for (const Setting& setting : experiment.base)
    base += fmt::format("{} = {}\n", setting.key, setting.value);
  out += fmt::format(
      "<p>All arms:</p>\n<pre>{}</pre>\n</section>\n</main>\n<footer><p>Written by thinwire {}. "
      "This file needs no network.</p></footer>\n",
      escaped(base), kVersion);
  return html_page(escaped(experiment.title) + " – thinwire experiment", out, nullptr);
}

}  // namespace thinwire
