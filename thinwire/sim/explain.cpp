// SPDX-License-Identifier: Apache-2.0
// The reasoning of a choice as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/text.h"
#include "thinwire/sim/search.h"

namespace thinwire {
namespace {

std::string row(const Considered& one, std::size_t widths[2], char mark) {
  std::string out =
      fmt::format("{} {:<{}}  {:<{}}  {:>8}  {:>10}  {:>10}  {:>9}", mark, one.form, widths[0],
                  one.grouping, widths[1], one.messages, format_seconds(one.step_s),
                  format_seconds(one.exposed_s), format_bytes(one.bytes_per_step));
  if (one.left_dense > 0) out += fmt::format("  {} of them as they are", one.left_dense);
  if (!one.note.empty()) out += "  " + one.note;
  return out + "\n";
}

Json row_json(const Considered& one) {
  Json out{{"form", one.form}, {"grouping", one.grouping}};
  if (one.step_s > 0) {
    out["messages"] = one.messages;
    out["left_dense"] = one.left_dense;
    out["predicted_step_s"] = one.step_s;
    out["predicted_exposed_s"] = one.exposed_s;
    out["predicted_bytes_per_step"] = one.bytes_per_step;
  }
  if (!one.note.empty()) out["note"] = one.note;
  return out;
}

/// The best of each form, and all candidates of the chosen one: what a reader compares.
std::vector<const Considered*> worth_showing(const Choice& choice) {
  std::vector<const Considered*> out;
  std::vector<std::string> seen;
  for (const Considered& one : choice.others) {
    if (one.step_s <= 0) continue;
    const bool known = std::find(seen.begin(), seen.end(), one.form) != seen.end();
    if (known && one.form != choice.chosen.form && one.form != "none") continue;
    seen.push_back(one.form);
    out.push_back(&one);
  }
  return out;
}

}  // namespace

std::string explain(const Choice& choice) {
  const auto shown = worth_showing(choice);
  std::size_t widths[2] = {std::max<std::size_t>(4, choice.chosen.form.size()),
                           std::max<std::size_t>(8, choice.chosen.grouping.size())};
  for (const Considered* one : shown) {
    widths[0] = std::max(widths[0], one->form.size());
    widths[1] = std::max(widths[1], one->grouping.size());
  }
  std::string out =
      fmt::format("  {:<{}}  {:<{}}  {:>8}  {:>10}  {:>10}  {:>9}\n", "form", widths[0], "grouping",
                  widths[1], "messages", "step", "exposed", "sent");
  out += row(choice.chosen, widths, '*');
  for (const Considered* one : shown) out += row(*one, widths, ' ');
  for (const Considered& one : choice.others)
    if (one.step_s <= 0) out += fmt::format("  {}: not considered: {}\n", one.form, one.note);
  out += choice.verdict + "\n";
  const double gap = choice.bound_s > 0 ? choice.chosen.step_s / choice.bound_s - 1 : 0;
  out += fmt::format(
      "No plan that sends as many bytes has a step under {} (this one {:.1f} % more). "
      "Predicted from what was measured, in virtual time.\n",
      format_seconds(choice.bound_s), 100 * std::max(0.0, gap));
  return out;
}

Json to_json(const Choice& choice) {
  Json others = Json::array();
  for (const Considered& one : choice.others) others.push_back(row_json(one));
  return {
      {"chosen", row_json(choice.chosen)}, {"dense", row_json(choice.dense)},
      {"compute_s", choice.compute_s},     {"bound_s", choice.bound_s},
      {"verdict", choice.verdict},         {"digest", fmt::format("{:016x}", digest(choice.plan))},
      {"others", std::move(others)}};
}

}  // namespace thinwire
