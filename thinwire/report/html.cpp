// SPDX-License-Identifier: Apache-2.0
// The page's frame, tables and words; the script draws curves and timelines into it. Everything a
// reader must know stands in the page without the script too.
#include "thinwire/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "thinwire/core/text.h"
#include "thinwire/core/version.h"
#include "thinwire/report/figures.h"
#include "thinwire/report/page_data.h"
#include "thinwire/report/page_frame.h"
#include "thinwire/report/plan_section.h"

namespace thinwire {
namespace {

std::string run_names(std::span<const RunData> runs) {
  std::vector<std::string> names;
  for (const RunData& run : runs) names.push_back(run.info.name);
  return join(names, " · ");
}

std::string header(std::span<const RunData> runs) {
  std::string out = "<header>\n<p class=\"mark\"><b>thinwire</b><span>report</span>";
  if (!runs[0].info.started_at.empty() && runs.size() == 1)
    out += fmt::format("<time datetime=\"{0}\">{0}</time>", escaped(runs[0].info.started_at));
  out += fmt::format("</p>\n<h1>{}</h1>\n<div class=\"verdict{}\" id=\"verdict\">\n",
                     escaped(run_names(runs)), runs.size() > 1 ? " many" : "");
  for (const std::string& line : split(verdict(runs), '\n'))
    out += "<p>" + escaped(line) + "</p>\n";
  return out + "</div>\n</header>\n";
}

std::string problems(std::span<const RunData> runs) {
  std::string out;
  for (const RunData& run : runs)
    for (const std::string& problem : run.problems)
      out += fmt::format("<p>{}: {}</p>\n", escaped(run.info.name), escaped(problem));
  return out.empty() ? out : "<section class=\"problem\" role=\"note\">\n" + out + "</section>\n";
}

std::string tile(const char* kind, std::string_view hint, std::string_view label,
                 std::string_view value) {
  return fmt::format("<div class=\"tile{}\" title=\"{}\"><dt>{}</dt><dd{}>{}</dd></div>\n",
                     std::string_view(kind) == "lead" ? " lead" : "", escaped(hint), escaped(label),
                     std::string_view(kind) == "word" ? " class=\"word\"" : "", value);
}

std::string tiles(const RunData& run, const std::vector<Figure>& rows) {
  std::string out = "<section class=\"bare\" aria-label=\"Key figures\">\n<dl class=\"tiles\">\n";
  const auto step =
      std::find_if(rows.begin(), rows.end(), [](const Figure& f) { return f.key == "step_s"; });
  bool first = true;
  for (const Figure& row : rows) {
    if (row.key == "steps" || row.key == "samples") continue;  // the sentence above says it
    if (row.key.starts_with("predicted_")) continue;           // stands beside the measured
    std::string value = escaped(row.texts[0]);
    if (row.key == "exposed_s" && step != rows.end() && *step->values[0] > 0)
      value +=
          fmt::format("<small>{:.0f} % of a step</small>", 100 * *row.values[0] / *step->values[0]);
    out += tile(first ? "lead" : "", row.hint, row.label, value);
    first = false;
  }
  const RunSetup& setup = run.info.setup;
  out += tile("", "Processes that train together.", "Ranks", format_count(setup.ranks));
  if (!setup.transport.empty())
    out += tile("word", setup.transport, "Transport", escaped(setup.transport));
  if (!setup.congestion_control.empty())
    out += tile("word", "Of TCP, as the system has it.", "Congestion control",
                escaped(setup.congestion_control));
  return out + "</dl>\n</section>\n";
}

std::string split_bar(const RunData& run) {
  const RunSummary known = known_summary(run);
  if (!known.step_s || !known.compute_s || !known.exposed_s || *known.step_s <= 0) return "";
  const double compute = 100 * std::clamp(*known.compute_s / *known.step_s, 0.0, 1.0);
  const double exposed = std::clamp(100 * *known.exposed_s / *known.step_s, 0.0, 100 - compute);
  const double other = 100 - compute - exposed;
  std::string out = fmt::format(
      "<section>\n<h2>Where a step goes</h2>\n<div class=\"split\" role=\"img\" "
      "aria-label=\"{0:.0f} percent compute, "
      "{1:.0f} percent exposed communication\"><i class=\"compute\" style=\"width:{0:.2f}%\"></i>"
      "<i class=\"exposed\" style=\"width:{1:.2f}%\"></i></div>\n<ul class=\"keys\">\n",
      compute, exposed);
  const auto key = [&](const char* color, const char* label, double share, Seconds seconds) {
    out += fmt::format(
        "<li><i class=\"swatch\" style=\"color:var(--{})\"></i>{}: {} ({:.0f} %)</li>\n", color,
        label, escaped(format_seconds(seconds)), share);
  };
  key("backward", "compute", compute, *known.compute_s);
  key("exposed", "exposed communication", exposed, *known.exposed_s);
  if (other >= 0.5) key("grid", "other", other, *known.step_s * other / 100);
  return out + "</ul>\n</section>\n";
}

// Absent where there is nothing to choose: one value only, or all equal.
std::optional<double> best_of(const Figure& row) {
  std::set<double> values;
  for (const auto& value : row.values)
    if (value) values.insert(*value);
  if (values.size() < 2 || row.better == Better::neither) return std::nullopt;
  return row.better == Better::lower ? *values.begin() : *values.rbegin();
}

// How a value stands to the first run's; accuracies in points, everything else as a ratio.
std::string relation(const Figure& row, std::size_t i) {
  const auto &first = row.values[0], &value = row.values[i];
  if (i == 0 || !first || !value || row.better == Better::neither) return "";
  if (row.key == "test_accuracy")
    return fmt::format(" <small>{:+.1f} points</small>", 100 * (*value - *first));
  if (*first <= 0) return "";
  return fmt::format(" <small>× {:.2f}</small>", *value / *first);
}

std::string run_head(std::span<const RunData> runs) {
  std::string out = "<thead><tr><th scope=\"col\"></th>";
  for (std::size_t i = 0; i < runs.size(); ++i)
    out += fmt::format(
        "<th scope=\"col\"><span class=\"keys\"><i class=\"swatch\" "
        "style=\"color:var(--run{})\"></i>{}"
        "</span></th>",
        i % 6, escaped(runs[i].info.name));
  return out + "</tr></thead>\n";
}

std::string comparison(std::span<const RunData> runs, const std::vector<Figure>& rows) {
  std::string out =
      "<section>\n<h2>Side by side</h2>\n<p class=\"note\">Ratios are against the first run; the "
      "best value of a row is "
      "marked.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Comparison\"><table class=\"figures\">\n" +
      run_head(runs) + "<tbody>\n";
  for (const Figure& row : rows) {
    out += fmt::format("<tr title=\"{}\"><th scope=\"row\">{}</th>", escaped(row.hint),
                       escaped(row.label));
    const auto best = best_of(row);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& value = row.values[i];
      const bool marked = best && value && *value == *best;
      out += fmt::format("<td>{}{}{}", marked ? "<span class=\"best\">" : "", escaped(row.texts[i]),
                         marked ? "</span>" : "");
      out += relation(row, i) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n</section>\n";
}

std::string run_keys(std::span<const RunData> runs) {
  if (runs.size() < 2) return "";
  std::string out = "<ul class=\"keys runs\">\n";
  for (std::size_t i = 0; i < runs.size(); ++i)
    out += fmt::format("<li><i class=\"swatch\" style=\"color:var(--run{})\"></i>{}</li>\n", i % 6,
                       escaped(runs[i].info.name));
  return out + "</ul>\n";
}

std::string curves(std::span<const RunData> runs) {
  const std::string keys = run_keys(runs);
  const std::string lines =
      keys.empty()
          ? ""
          : "<p class=\"note\">Full lines: training. Dashed lines with marks: test.</p>\n" + keys;
  return R"(<section>
<div class="bar"><h2>Curves</h2>
<fieldset class="choice" aria-label="Horizontal axis">
<label><input type="radio" name="axis" value="step" checked><span>Steps</span></label>
<label><input type="radio" name="axis" value="time"><span>Seconds</span></label>
<label><input type="radio" name="axis" value="bytes"><span>Bytes sent</span></label>
</fieldset></div>
)" + lines +
         R"(<div class="charts">
<div class="chart" id="chart-loss"><canvas role="img" aria-label="Loss over the run"></canvas></div>
<div class="chart" id="chart-accuracy"><canvas role="img" aria-label="Accuracy over the run"></canvas></div>
</div>
</section>
<section>
<h2>Step time</h2>
<p class="note">How long a step took as the run went on.</p>
)" + keys +
         R"(<div class="chart tall" id="chart-speed"><canvas role="img" aria-label="Step time over the run"></canvas></div>
</section>
)";
}

std::string timeline(const RunData& run, std::size_t number, bool named) {
  const bool simulated = run.trace.clock == TraceClock::virtual_time;
  std::string keys;
  for (const char* kind : {"forward", "backward", "update", "exchange", "exposed"})
    keys += fmt::format("<li><i class=\"swatch\" style=\"color:var(--{0})\"></i>{0}</li>", kind);
  return fmt::format(
      R"(<section class="steps" data-run="{0}">
<div class="bar"><h2>One step{1}</h2><label>Step <select></select></label></div>
<p class="note">{2} Exchanges are numbered as in the plan; exposed is where a rank waits for an exchange and computes nothing.
<span class="apart" hidden>The ranks' clocks cannot be compared, so each rank begins at 0.</span></p>
<ul class="keys">{3}</ul>
<div class="timeline"></div>
<p class="said" aria-live="polite"></p>
<details><summary>Exchanges as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Exchanges"><table>
<thead><tr><th scope="col">Rank</th><th scope="col">Exchange</th><th scope="col">Begin</th><th scope="col">End</th><th scope="col">Duration</th><th scope="col">Sent</th></tr></thead><tbody></tbody></table></div></details>
</section>
)",
      number, named ? ": " + escaped(run.info.name) : "",
      simulated ? "Virtual time, from the simulator." : "Measured time.", keys);
}

void flatten(const Json& json, const std::string& prefix, std::map<std::string, std::string>& out) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [key, value] : json.items())
      flatten(value, prefix.empty() ? key : prefix + "." + key, out);
  } else if (!prefix.empty()) {
    out[prefix] = json.is_string() ? json.get<std::string>()
                                   : json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

enum class Rows : std::uint8_t { all, different };

std::string settings_table(std::span<const RunData> runs, Json RunInfo::* part, Rows which) {
  std::vector<std::map<std::string, std::string>> flat(runs.size());
  std::set<std::string> keys;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    flatten(runs[i].info.*part, "", flat[i]);
    for (const auto& [key, value] : flat[i]) keys.insert(key);
  }
  std::string rows;
  for (const std::string& key : keys) {
    std::set<std::string> values;
    std::string cells;
    for (const auto& one : flat) {
      const auto it = one.find(key);
      values.insert(it == one.end() ? std::string() : it->second);
      cells += fmt::format("<td><code>{}</code></td>",
                           it == one.end() ? std::string("–") : escaped(it->second));
    }
    if (which == Rows::different && values.size() < 2) continue;
    rows += fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>\n", escaped(key), cells);
  }
  if (rows.empty()) return "";
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Settings\"><table "
         "class=\"settings\">\n" +
         (runs.size() > 1 ? run_head(runs) : std::string()) + "<tbody>\n" + rows +
         "</tbody></table></div>\n";
}

std::string quoted_command(const std::vector<std::string>& command) {
  std::string out;
  for (const std::string& word : command) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$`*?;&|<>(){}#~!") == std::string::npos;
    std::string quoted = word;
    for (std::size_t at = 0; (at = quoted.find('\'', at)) != std::string::npos; at += 4)
      quoted.replace(at, 1, "'\\''");
    out += (out.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return out;
}

std::string what_ran(std::span<const RunData> runs) {
  std::string out = "<section>\n<h2>What ran</h2>\n";
  if (runs.size() == 1) {
    out += "<dl class=\"facts\">\n";
    for (const Fact& fact : facts(runs))
      out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(fact.label),
                         escaped(fact.texts[0]));
    out += "</dl>\n";
  } else {
    out +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What ran\"><table>\n" +
        run_head(runs) + "<tbody>\n";
    for (const Fact& fact : facts(runs)) {
      out += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(fact.label));
      for (const std::string& text : fact.texts) out += fmt::format("<td>{}</td>", escaped(text));
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
    if (const auto rows = settings_table(runs, &RunInfo::configuration, Rows::different);
        !rows.empty())
      out += "<h3 style=\"margin-top:16px\">Settings that differ</h3>\n" + rows;
  }
  for (const RunData& run : runs)
    if (!run.info.command.empty())
      out += fmt::format("<details{}><summary>Command{}</summary><pre>{}</pre></details>\n",
                         runs.size() == 1 ? " open" : "",
                         runs.size() == 1 ? "" : ": " + escaped(run.info.name),
                         escaped(quoted_command(run.info.command)));
  const auto add = [&](const char* title, Json RunInfo::* part) {
    if (const auto rows = settings_table(runs, part, Rows::all); !rows.empty())
      out += fmt::format("<details><summary>{}</summary>{}</details>\n", title, rows);
  };
  add("Configuration", &RunInfo::configuration);
  add("Versions", &RunInfo::versions);
  return out + "</section>\n";
}

std::string footer() {
  return fmt::format(R"(<footer>
<details><summary>How to read this page</summary>
<dl class="terms">
<dt>Exposed communication</dt><dd>The part of a step in which a rank waits for exchanges and computes nothing. What overlaps with compute costs no time and is not counted.</dd>
<dt>Sent per step</dt><dd>Bytes that one rank put on the wire in a step, headers included.</dd>
<dt>Step time</dt><dd>From the beginning of one update to the beginning of the next, median over the run.</dd>
<dt>Curves</dt><dd>Each point of a long curve is the mean of neighbouring steps. A gap is a value that was not a number.</dd>
</dl></details>
<p>Written by thinwire {}. This file needs no network. Curves are drawn by Chart.js 3 (MIT licence, text in the file).</p>
</footer>
)",
                     kVersion);
}

bool has_curves(std::span<const RunData> runs) {
  return std::any_of(runs.begin(), runs.end(),
                     [](const RunData& run) { return !run.metrics.empty(); });
}

std::string body(std::span<const RunData> runs) {
  const auto rows = figures(runs);
  std::string out = header(runs) + "<main>\n" + problems(runs);
  if (!rows.empty())
    out += runs.size() == 1 ? tiles(runs[0], rows) + split_bar(runs[0]) : comparison(runs, rows);
  if (runs.size() == 1) out += plan_section(runs[0]);
  if (has_curves(runs))
    out +=
        "<noscript><section><p>Curves and timelines are drawn by this page's "
        "script.</p></section></noscript>\n" +
        curves(runs);
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].trace.events.empty()) out += timeline(runs[i], i, runs.size() > 1);
  return out + what_ran(runs) + "</main>\n" + footer();
}

}  // namespace

std::string html_report(std::span<const RunData> runs) {
  if (runs.empty()) throw ConfigError("report: at least one run is needed, got 0");
  const Json data = page_data(runs);
  return html_page(escaped(run_names(runs)) + " – thinwire report", body(runs), &data);
}

std::string write_report(const std::string& run_folder) {
  const RunData run = read_run(run_folder);
  const std::string path = RunFolder::open(run_folder).file("report.html");
  write_text(path, html_report(std::span(&run, 1)));
  return path;
}

}  // namespace thinwire
