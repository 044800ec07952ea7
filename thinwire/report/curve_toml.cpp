// SPDX-License-Identifier: Apache-2.0
// The TOML side of curve.h.
#include <filesystem>

#include "thinwire/report/curve.h"
#include "thinwire/report/toml_table.h"

namespace thinwire {
namespace {

constexpr CurveRuleKind kCurveRules[] = {CurveRuleKind::never_above, CurveRuleKind::crosses,
                                         CurveRuleKind::ratio_at,    CurveRuleKind::value_at,
                                         CurveRuleKind::growth,      CurveRuleKind::has_minimum};

CurveRuleKind read_rule_kind(Table& table) {
  const std::string holds = table.text("holds", true);
  std::vector<std::string> valid;
  for (const CurveRuleKind one : kCurveRules) {
    if (word(one) == holds) return one;
    valid.emplace_back(word(one));
  }
  table.refuse(table.line(), unknown_name("rule", holds, valid));
}

CurveRule read_curve_rule(Table& table) {
  using Kind = CurveRuleKind;
  CurveRule rule{.kind = read_rule_kind(table),
                 .arm = table.text("arm", true),
                 .value = table.text("value", true),
                 .line = table.line()};
  const Kind kind = rule.kind;
  if (kind == Kind::never_above || kind == Kind::crosses || kind == Kind::ratio_at)
    rule.of = table.text("of", true);
  if (kind == Kind::never_above) rule.margin = table.number("margin", 0.0);
  if (kind == Kind::ratio_at || kind == Kind::value_at) rule.at = table.number("at", std::nullopt);
  if (kind == Kind::ratio_at || kind == Kind::value_at || kind == Kind::growth) {
    if (table.find("least", false)) rule.least = table.number("least", std::nullopt);
    if (table.find("most", false)) rule.most = table.number("most", std::nullopt);
    if (!rule.least && !rule.most)
      table.refuse(table.line(), fmt::format("{} needs least, most or both", word(kind)));
  }
  table.finish();
  return rule;
}

Arm read_curve_arm(Table& table) {
  Arm arm{.name = table.text("name", true), .note = table.text("note", false)};
  arm.settings = table.settings();
  arm.line = table.line();
  return arm;
}

std::vector<double> read_xs(Table& top) {
  const toml::node* node = top.find("xs", true);
  const auto* list = node->as_array();
  std::vector<double> out;
  if (list)
    for (const auto& item : *list)
      if (const auto value = item.value<double>(); value && std::isfinite(*value))
        out.push_back(*value);
  if (!list || out.size() != list->size() || out.size() < 2 ||
      std::adjacent_find(out.begin(), out.end(), std::greater_equal<>()) != out.end())
    top.refuse(line_of(*node), "xs must be at least two numbers, rising");
  return out;
}

std::vector<std::string> read_shows(Table& top) {
  const toml::node* node = top.find("shows", true);
  const auto* list = node->as_array();
  std::vector<std::string> out;
  if (list)
    for (const auto& item : *list)
      if (const auto* text = item.as_string()) out.push_back(text->get());
  if (!list || out.empty() || out.size() != list->size())
    top.refuse(line_of(*node), "shows must be a list of texts");
  return out;
}

void check_curve(const CurveExperiment& experiment, const Table& top) {
  check_arms(experiment, top);
  const auto is_x = [&](double x, int line) {
    if (std::find(experiment.xs.begin(), experiment.xs.end(), x) == experiment.xs.end())
      top.refuse(line, fmt::format("{:g} is not among xs", x));
  };
  for (const CurveRule& rule : experiment.rules) {
    if (rule.kind == CurveRuleKind::ratio_at || rule.kind == CurveRuleKind::value_at)
      is_x(rule.at, rule.line);
  }
  for (const auto& [x, settings] : experiment.at)
    is_x(x, settings.empty() ? top.line() : settings.front().line);
}

}  // namespace

std::string experiment_kind(std::string_view text, const std::string& source) {
  const toml::table root = parse_toml(text, source);
  return root["kind"].value_or(std::string("trained"));
}

CurveExperiment parse_curve(std::string_view text, const std::string& source) {
  const toml::table root = parse_toml(text, source);
  Table top(root, source, "the experiment");
  CurveExperiment out;
  out.name = std::filesystem::path(source).stem().string();
  out.source = source;
  if (top.text("kind", true) != "simulated")
    top.refuse(top.line(), "kind must be trained or simulated");
  out.title = top.text("title", true);
  out.paper = top.text("paper", true);
  out.claim = top.text("claim", true);
  out.departs = top.text("departs", false);
  out.x = top.text("x", true);
  out.xs = read_xs(top);
  out.shows = read_shows(top);
  if (const toml::node* base = top.find("base", false)) {
    if (!base->is_table()) top.refuse(line_of(*base), "base must be a table [base]");
    out.base = Table(*root.get_as<toml::table>("base"), source, "[base]").settings();
  }
  if (top.find("at", false))
    each_table(root, top, source, "at", [&](Table& table) {
      const double x = table.number("x", std::nullopt);
      if (!out.at.emplace(x, table.settings()).second)
        table.refuse(table.line(), fmt::format("x = {:g} is there twice", x));
    });
  each_table(root, top, source, "arm",
             [&](Table& table) { out.arms.push_back(read_curve_arm(table)); });
  each_table(root, top, source, "rule",
             [&](Table& table) { out.rules.push_back(read_curve_rule(table)); });
  top.finish();
  check_curve(out, top);
  return out;
}

}  // namespace thinwire
