// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/plan_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "thinwire/core/text.h"
#include "thinwire/report/figures.h"
#include "thinwire/report/page_frame.h"

namespace thinwire {
namespace {

constexpr std::size_t kMostRows = 14;

std::string pair_row(std::string_view label, const std::optional<double>& predicted,
                     const std::optional<double>& measured,
                     const std::function<std::string(double)>& text) {
  if (!predicted || !measured) return {};
  const std::string off =
      *predicted > 0 ? fmt::format("{:+.1f} %", 100 * (*measured / *predicted - 1)) : "";
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                     escaped(label), escaped(text(*predicted)), escaped(text(*measured)), off);
}

std::string compared(const RunSummary& known) {
  const auto bytes = [](double x) { return format_bytes(static_cast<Bytes>(x)); };
  const std::string rows =
      pair_row("Step time", known.predicted_step_s, known.step_s, format_seconds) +
      pair_row("Exposed communication", known.predicted_exposed_s, known.exposed_s,
               format_seconds) +
      pair_row("Sent per step", known.predicted_bytes_per_step, known.wire_bytes_per_step, bytes);
  if (rows.empty()) return {};
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Predicted and "
         "measured\">"
         "<table class=\"figures\" id=\"predicted\"><thead><tr><td></td>"
         "<th scope=\"col\">Predicted</th><th scope=\"col\">Measured</th>"
         "<th scope=\"col\">Difference</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>\n";
}

std::string row(const Json& one, bool chosen, const std::string& source) {
  const std::string note = get_or<std::string>(one, "note", "", source);
  const std::string form = get_or<std::string>(one, "form", "", source),
                    grouping = get_or<std::string>(one, "grouping", "", source);
  std::string out = fmt::format("<tr{}><th scope=\"row\">{}</th><td>{}</td>",
                                chosen ? " class=\"best\"" : "", escaped(form), escaped(grouping));
  if (!one.contains("predicted_step_s"))
    return out + fmt::format("<td colspan=\"4\">{}</td></tr>\n", escaped(note));
  const auto seconds = [&](const char* key) {
    return escaped(format_seconds(get<double>(one, key, source)));
  };
  return out +
         fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                     get<std::int64_t>(one, "messages", source), seconds("predicted_step_s"),
                     seconds("predicted_exposed_s"),
                     escaped(format_bytes(get<Bytes>(one, "predicted_bytes_per_step", source))));
}

/// The chosen plan, then the best of the others.
std::string considered(const Json& choice, const std::string& source) {
  std::string out =
      "<details><summary>What else was considered, and what it would have cost</summary>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Candidates\">"
      "<table class=\"figures\" id=\"considered\"><thead><tr>"
      "<th scope=\"col\">Form</th><th scope=\"col\">Grouping</th><th scope=\"col\">Messages</th>"
      "<th scope=\"col\">Step</th><th scope=\"col\">Exposed</th><th scope=\"col\">Sent</th>"
      "</tr></thead><tbody>\n" +
      row(choice.at("chosen"), true, source);
  const auto others = get<Json::array_t>(choice, "others", source);
  for (std::size_t i = 0; i < std::min(kMostRows, others.size()); ++i)
    out += row(others[i], false, source);
  out += "</tbody></table></div>\n";
  if (others.size() > kMostRows)
    out += fmt::format("<p class=\"note\">And {} more in choice.json.</p>\n",
                       others.size() - kMostRows);
  return out + "</details>\n";
}

}  // namespace

std::string plan_section(const RunData& run) {
  if (!run.choice.is_object()) return {};
  const std::string source = run.path + "/choice.json";
  return "<section id=\"plan\">\n<h2>Why this plan</h2>\n<p>" +
         escaped(get<std::string>(run.choice, "verdict", source)) + "</p>\n" +
         compared(known_summary(run)) +
         "<p class=\"note\">Predictions are virtual time, from what was measured when the plan was "
         "chosen.</p>\n" +
         considered(run.choice, source) + "</section>\n";
}

}  // namespace thinwire
