// SPDX-License-Identifier: Apache-2.0
// The TOML side of experiment.h, apart because toml++ is slow to compile.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/report/experiment.h"

namespace thinwire {
namespace {

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

/// Reads one table; every complaint names the file and the line.
class Table {
 public:
  Table(const toml::table& table, const std::string& source, std::string what)
      : table_(table), source_(source), what_(std::move(what)) {}

  [[noreturn]] void refuse(int line, const std::string& rule) const {
    throw ConfigError(fmt::format("{}, line {}: {}", source_, line, rule));
  }
  int line() const { return line_of(table_); }

  std::string text(const char* key, bool needed) {
    const toml::node* node = find(key, needed);
    if (!node) return {};
    const auto* value = node->as_string();
    if (!value) refuse(line_of(*node), fmt::format("{} must be a text", key));
    if (needed && value->get().empty())
      refuse(line_of(*node), fmt::format("{} must not be empty", key));
    return value->get();
  }
  double number(const char* key, std::optional<double> fallback) {
    const toml::node* node = find(key, !fallback);
    if (!node) return *fallback;
    const auto value = node->value<double>();
    if (!value || !std::isfinite(*value))
      refuse(line_of(*node), fmt::format("{} must be a number", key));
    return *value;
  }
  std::int64_t count(const char* key, std::int64_t fallback) {
    const toml::node* node = find(key, false);
    if (!node) return fallback;
    const auto* value = node->as_integer();
    if (!value || value->get() < 1 || value->get() > 1000)
      refuse(line_of(*node), fmt::format("{} must be a whole number in [1, 1000]", key));
    return value->get();
  }
  const toml::node* find(const char* key, bool needed) {
    known_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node && needed) refuse(line(), fmt::format("{} lacks the key '{}'", what_, key));
    return node;
  }
  /// What nobody has read, as options of `thinwire train`.
  std::vector<Setting> settings() const {
    std::vector<Setting> out;
    for (const auto& [key, node] : table_)
      if (!known_.contains(std::string(key.str())))
        out.push_back({std::string(key.str()), setting(node, key.str()), line_of(node)});
    std::stable_sort(out.begin(), out.end(),
                     [](const Setting& a, const Setting& b) { return a.line < b.line; });
    return out;
  }
  /// Refuses what nobody has read.
  void finish() const {
    const std::vector<std::string> valid(known_.begin(), known_.end());
    for (const auto& [key, node] : table_)
      if (!known_.contains(std::string(key.str())))
        refuse(line_of(node), unknown_name("key", key.str(), valid));
  }

 private:
  std::string setting(const toml::node& node, std::string_view key) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    refuse(line_of(node), fmt::format("{}: a text, number or true/false was expected", key));
  }
  const toml::table& table_;
  const std::string& source_;
  std::string what_;
  std::set<std::string> known_;
};

template <class Each>
void each_table(const toml::table& root, Table& top, const std::string& source, const char* key,
                Each each) {
  const toml::node* node = top.find(key, true);
  const auto* list = node->as_array();
  if (!list || !list->is_array_of_tables())
    top.refuse(line_of(*node), fmt::format("{0} must be tables under [[{0}]]", key));
  for (const auto& item : *root.get_as<toml::array>(key)) {
    Table table(*item.as_table(), source, fmt::format("[[{}]]", key));
    each(table);
  }
}

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
  std::set<std::string> seen;
  for (const Arm& arm : experiment.arms)
    if (!seen.insert(arm.name).second)
      top.refuse(arm.line, fmt::format("the arm '{}' is there twice", arm.name));
  const auto known = [&](const std::string& name, int line) {
    try {
      experiment.arm(name);
    } catch (const ConfigError& error) {
      top.refuse(line, error.what());
    }
  };
  known(experiment.control, top.line());
  for (const Rule& rule : experiment.rules) {
    known(rule.arm, rule.line);
    if (!rule.of.empty()) known(rule.of, rule.line);
  }
}

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}, line {}: {}", source, error.source().begin.line,
                                  std::string(error.description())));
  }
  Table top(root, source, "the experiment");
  Experiment out;
  out.name = std::filesystem::path(source).stem().string();
  out.source = source;
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
