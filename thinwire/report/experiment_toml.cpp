// SPDX-License-Identifier: Apache-2.0
// The TOML side of experiment.h, apart because toml++ is slow to compile.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/report/experiment.h"
#include "thinwire/report/toml_table.h"

namespace thinwire {
namespace {

Arm read_arm(Table& table) {
  Arm arm;
  arm.name = table.text("name", true);
  if (arm.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
    table.refuse(table.line(),
                 fmt::format("an arm's name has a-z, 0-9 and _ only, got '{}'", arm.name));
  arm.note = table.text("note", false);
  arm.accumulate = table.count("accumulate", 1);
  arm.settings = table.settings();
  arm.line = table.line();
  return arm;
}

Metric read_metric(Table& table) {
  const std::string name = table.text("metric", false);
  if (name.empty() || name == "test_accuracy") return Metric::test_accuracy;
  if (name == "test_loss") return Metric::test_loss;
  const std::vector<std::string> valid{"test_accuracy", "test_loss"};
  table.refuse(table.line(), unknown_name("metric", name, valid));
}

Rule read_rule(Table& table) {
  constexpr RuleKind kKinds[] = {RuleKind::within, RuleKind::better, RuleKind::reaches,
                                 RuleKind::bytes_ratio, RuleKind::diverges};
  const std::string holds = table.text("holds", true);
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](RuleKind one) { return word(one) == holds; });
  if (kind == std::end(kKinds)) {
    std::vector<std::string> valid;
    for (const RuleKind one : kKinds) valid.emplace_back(word(one));
    table.refuse(table.line(), unknown_name("rule", holds, valid));
  }
  Rule rule{.kind = *kind, .arm = table.text("arm", true), .line = table.line()};
  const auto least = [&](const char* key, std::optional<double> fallback) {
    rule.limit = table.number(key, fallback);
    if (rule.limit < 0)
      table.refuse(table.line(), fmt::format("{} must be at least 0, got {}", key, rule.limit));
  };
  switch (rule.kind) {
    case RuleKind::within:
    case RuleKind::better:
      rule.of = table.text("of", true);
      rule.metric = read_metric(table);
      least("margin", rule.kind == RuleKind::better ? std::optional(0.0) : std::nullopt);
      break;
    case RuleKind::reaches:
      rule.metric = read_metric(table);
      least("value", std::nullopt);
      break;
    case RuleKind::bytes_ratio:
      rule.of = table.text("of", true);
      least("least", std::nullopt);
      break;
    case RuleKind::diverges:
      least("below", std::nullopt);
      break;
  }
  table.finish();
  return rule;
}

std::vector<Setting> read_settings(const toml::table& root, Table& top, const std::string& source,
                                   const char* key, std::int64_t* seeds) {
  const toml::node* node = top.find(key, seeds == nullptr);
  if (!node) return {};
  if (!node->is_table()) top.refuse(line_of(*node), fmt::format("{0} must be a table [{0}]", key));
  Table table(*root.get_as<toml::table>(key), source, fmt::format("[{}]", key));
  if (seeds) *seeds = table.count("seeds", 0);
  return table.settings();
}

void check_names(const Experiment& experiment, const Table& top) {
  check_arms(experiment, top);
  check_arm(experiment, experiment.control, top, top.line());
}

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& source) {
  const toml::table root = parse_toml(text, source);
  Table top(root, source, "the experiment");
  Experiment out;
  out.name = std::filesystem::path(source).stem().string();
  out.source = source;
  if (const std::string kind = top.text("kind", false); !kind.empty() && kind != "trained")
    top.refuse(top.line(),
               fmt::format("an experiment that trains has kind trained, got '{}'", kind));
  out.title = top.text("title", true);
  out.paper = top.text("paper", true);
  out.claim = top.text("claim", true);
  out.departs = top.text("departs", false);
  out.seeds = top.count("seeds", 5);
  out.base = read_settings(root, top, source, "base", nullptr);
  out.quick = read_settings(root, top, source, "quick", &out.quick_seeds);
  each_table(root, top, source, "arm", [&](Table& table) { out.arms.push_back(read_arm(table)); });
  each_table(root, top, source, "rule",
             [&](Table& table) { out.rules.push_back(read_rule(table)); });
  out.control = top.text("control", false);
  if (out.control.empty()) out.control = out.arms.front().name;
  top.finish();
  check_names(out, top);
  return out;
}

}  // namespace thinwire
