// SPDX-License-Identifier: Apache-2.0
// Spec strings: the one way to name and configure everything, in C++, on the command line, in
// Python and in JSON.
//   chain  := spec ('|' spec)*
//   spec   := name [ '{' item (',' item)* '}' ]
//   item   := key '=' value | spec            (a bare spec is an inner spec)
// A value may hold anything but , { } | and control characters; blanks around it are dropped.
// A string prints back to itself once it is in canonical form (parameters sorted by key, no
// blanks).
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

struct Spec {
  std::string name;
  std::map<std::string, std::string> params;
  std::vector<Spec> inner;
  bool operator==(const Spec&) const = default;
};

/// "ef|topk{ratio=0.01}" -> {ef, topk}. Malformed text: ConfigError that shows the place.
std::vector<Spec> parse_chain(std::string_view text);
/// One spec; a chain of several is a ConfigError.
Spec parse_spec(std::string_view text);
std::string to_string(const Spec& spec);
std::string to_string(std::span<const Spec> chain);

/// Typed reading of a spec's parameters. `finish()` refuses what nobody read, naming the nearest
/// valid name.
class SpecReader {
 public:
  explicit SpecReader(const Spec& spec) : spec_(spec) {}
  std::string text(const std::string& key, const std::string& fallback);
  double number(const std::string& key, double fallback);
  std::int64_t integer(const std::string& key, std::int64_t fallback);
  std::int64_t bytes(const std::string& key, std::int64_t fallback);  ///< "25MiB", "1e6", "64KiB"
  bool flag(const std::string& key, bool fallback);                   ///< true/false/yes/no/1/0
  const std::vector<Spec>& inner();  ///< the inner specs; without this call finish() refuses any
  void finish() const;  ///< ConfigError for unknown keys, and for inner specs nobody read
 private:
  const std::string* find(const std::string& key);
  const Spec& spec_;
  std::set<std::string> known_;
  bool inner_read_ = false;
};

}  // namespace thinwire
