// SPDX-License-Identifier: Apache-2.0
// A sorted table from spec name to factory. Filled once, when first asked for; read-only
// afterwards.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {

template <class Make>
class Registry {
 public:
  struct Entry {
    Make make;
    std::string help;  ///< one line: what it does, then its options with defaults
  };
  /// `what` is the word used in errors: "codec", "grouping", ...
  explicit Registry(std::string what) : what_(std::move(what)) {}

  void add(const std::string& name, Make make, std::string help = {}) {
    if (!entries_.try_emplace(name, Entry{std::move(make), std::move(help)}).second)
      throw ConfigError(what_ + " '" + name + "' is registered twice");
  }
  /// Unknown: ConfigError that names the nearest and all valid names.
  const Entry& find(std::string_view name) const {
    const auto it = entries_.find(std::string(name));
    if (it == entries_.end()) {
      const auto valid = names();
      throw ConfigError(unknown_name(what_, name, valid));
    }
    return it->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    out.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::string what_;
  std::map<std::string, Entry> entries_;
};

}  // namespace thinwire
