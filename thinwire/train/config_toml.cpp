// SPDX-License-Identifier: Apache-2.0
// The TOML side of config.h, apart because toml++ is slow to compile.
#include <fmt/format.h>

#include <sstream>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "thinwire/core/error.h"
#include "thinwire/train/config.h"

#include <filesystem>

namespace thinwire {
namespace {

/// The value as the text that key=value would have had.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  throw ConfigError("a string, number or true/false was expected, not a table, list or date");
}

}  // namespace

void parse_toml(TrainConfig& config, std::string_view text, const std::string& source) {
  toml::table table;
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}, line {}: {}", source, error.source().begin.line,
                                  std::string(error.description())));
  }
  for (const auto& [key, node] : table) {
    try {
      set_option(config, key.str(), text_of(node));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}, line {}, {}: {}", source, node.source().begin.line,
                                    std::string(key.str()), error.what()));
    }
  }
}

void read_toml(TrainConfig& config, const std::string& path) {
  parse_toml(config, read_text(path), path);
}

void read_words(TrainConfig& config, const std::vector<std::string>& words) {
  bool first = true;
  for (const std::string& word : words) {
    if (first && (word.ends_with(".toml") || std::filesystem::is_regular_file(word)))
      read_toml(config, word);
    else
      set_option(config, word);
    first = false;
  }
}

}  // namespace thinwire
