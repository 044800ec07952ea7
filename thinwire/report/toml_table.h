// SPDX-License-Identifier: Apache-2.0
// Internal to report: reads the tables of an experiment's file. Slow to compile, because of toml++.
#pragma once
#define TOML_ENABLE_FORMATTERS 0
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/report/experiment.h"

namespace thinwire {

/// ConfigError that names the line.
inline toml::table parse_toml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}, line {}: {}", source, error.source().begin.line,
                                  std::string(error.description())));
  }
}

inline int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

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

/// Refuses a name that no arm of the experiment has.
template <class AnyExperiment>
void check_arm(const AnyExperiment& experiment, const std::string& name, const Table& top,
               int line) {
  try {
    experiment.arm(name);
  } catch (const ConfigError& error) {
    top.refuse(line, error.what());
  }
}

/// Refuses two arms of one name, and rules about arms that are not there.
template <class AnyExperiment>
void check_arms(const AnyExperiment& experiment, const Table& top) {
  std::set<std::string> seen;
  for (const Arm& arm : experiment.arms)
    if (!seen.insert(arm.name).second)
      top.refuse(arm.line, fmt::format("the arm '{}' is there twice", arm.name));
  for (const auto& rule : experiment.rules) {
    check_arm(experiment, rule.arm, top, rule.line);
    if (!rule.of.empty()) check_arm(experiment, rule.of, top, rule.line);
  }
}

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

}  // namespace thinwire
