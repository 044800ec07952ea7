// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/spec.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

constexpr int kMaxDepth = 32;  // bounds the recursion, whatever the text
constexpr std::size_t kMaxShown = 200;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; }
bool ends_value(char c) { return c == ',' || c == '{' || c == '}' || c == '|'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Spec> chain() {
    std::vector<Spec> out;
    do out.push_back(spec(0));
    while (take('|'));
    if (at_ < text_.size()) fail(fmt::format("unexpected '{}'", text_[at_]));
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    const std::string_view more = text_.size() > kMaxShown ? "..." : "";
    std::string sentence =
        fmt::format("'{}{}': {} at character {}", text_.substr(0, kMaxShown), more, why, at_ + 1);
    for (char& c : sentence)
      if (static_cast<unsigned char>(c) < 0x20) c = '?';  // a NUL would end the text of what()
    throw ConfigError(sentence);
  }
  char peek() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  std::string name() {
    if (!is_name_start(peek())) fail("expected a name");
    const std::size_t from = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  std::string value(const std::string& key) {
    peek();
    const std::size_t from = at_;
    while (at_ < text_.size() && !ends_value(text_[at_])) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20 && !is_blank(text_[at_]))
        fail("unexpected control character");
      ++at_;
    }
    std::size_t to = at_;
    while (to > from && is_blank(text_[to - 1])) --to;
    if (to == from) fail(fmt::format("expected a value for '{}'", key));
    return std::string(text_.substr(from, to - from));
  }
  Spec spec(int depth) {
    Spec out{.name = name()};
    items(out, depth);
    return out;
  }
  void items(Spec& out, int depth) {
    if (!take('{') || take('}')) return;
    if (depth >= kMaxDepth) fail(fmt::format("more than {} nested braces", kMaxDepth));
    do {
      const std::size_t start = (peek(), at_);
      std::string word = name();
      if (take('=')) {
        if (out.params.contains(word)) {
          at_ = start;
          fail(fmt::format("'{}' is given twice", word));
        }
        out.params[word] = value(word);
      } else {
        Spec inner{.name = std::move(word)};
        items(inner, depth + 1);
        out.inner.push_back(std::move(inner));
      }
    } while (take(','));
    if (!take('}')) fail("expected ',' or '}'");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Spec> parse_chain(std::string_view text) { return Parser(text).chain(); }

Spec parse_spec(std::string_view text) {
  auto chain = parse_chain(text);
  if (chain.size() != 1)
    throw ConfigError(
        fmt::format("'{}': one name was expected, not a chain of {}", text, chain.size()));
  return std::move(chain[0]);
}

std::string to_string(const Spec& spec) {
  if (spec.params.empty() && spec.inner.empty()) return spec.name;
  std::vector<std::string> items;
  items.reserve(spec.params.size() + spec.inner.size());
  for (const auto& [key, value] : spec.params) items.push_back(key + "=" + value);
  for (const auto& inner : spec.inner) items.push_back(to_string(inner));
  return spec.name + "{" + join(items, ",") + "}";
}

std::string to_string(std::span<const Spec> chain) {
  std::vector<std::string> parts;
  for (const auto& spec : chain) parts.push_back(to_string(spec));
  return join(parts, "|");
}

const std::string* SpecReader::find(const std::string& key) {
  known_.insert(key);
  const auto it = spec_.params.find(key);
  return it == spec_.params.end() ? nullptr : &it->second;
}

std::string SpecReader::text(const std::string& key, const std::string& fallback) {
  const std::string* value = find(key);
  return value ? *value : fallback;
}

double SpecReader::number(const std::string& key, double fallback) {
  const std::string* value = find(key);
  if (!value) return fallback;
  double out = 0;
  const char* end = value->data() + value->size();
  const auto [at, error] = std::from_chars(value->data(), end, out);
  if (error != std::errc{} || at != end || !std::isfinite(out))
    throw ConfigError(fmt::format("{}: {} must be a number, got '{}'", spec_.name, key, *value));
  return out;
}

std::int64_t SpecReader::integer(const std::string& key, std::int64_t fallback) {
  const std::string* value = find(key);
  if (!value) return fallback;
  std::int64_t out = 0;
  const char* end = value->data() + value->size();
  if (const auto [at, error] = std::from_chars(value->data(), end, out);
      error == std::errc{} && at == end)
    return out;
  double real = 0;  // "1e6" is a whole number too
  if (const auto [at, error] = std::from_chars(value->data(), end, real);
      error == std::errc{} && at == end && real == std::floor(real) && std::abs(real) <= 0x1p53)
    return static_cast<std::int64_t>(real);
  throw ConfigError(
      fmt::format("{}: {} must be a whole number, got '{}'", spec_.name, key, *value));
}

std::int64_t SpecReader::bytes(const std::string& key, std::int64_t fallback) {
  const std::string* value = find(key);
  if (!value) return fallback;
  try {
    return parse_bytes(*value);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}: {}", spec_.name, key, error.what()));
  }
}

bool SpecReader::flag(const std::string& key, bool fallback) {
  const std::string* value = find(key);
  if (!value) return fallback;
  if (*value == "true" || *value == "yes" || *value == "1") return true;
  if (*value == "false" || *value == "no" || *value == "0") return false;
  throw ConfigError(fmt::format("{}: {} must be true or false, got '{}'", spec_.name, key, *value));
}

const std::vector<Spec>& SpecReader::inner() {
  inner_read_ = true;
  return spec_.inner;
}

void SpecReader::finish() const {
  const std::vector<std::string> valid(known_.begin(), known_.end());
  for (const auto& [key, value] : spec_.params)
    if (!known_.contains(key))
      throw ConfigError(spec_.name + ": " + unknown_name("parameter", key, valid));
  if (inner_read_ || spec_.inner.empty()) return;
  const std::string& word = spec_.inner[0].name;
  if (known_.contains(word))
    throw ConfigError(fmt::format("{}: '{}' needs a value, as in {}=1", spec_.name, word, word));
  throw ConfigError(spec_.name + ": " + unknown_name("parameter", word, valid));
}

}  // namespace thinwire
