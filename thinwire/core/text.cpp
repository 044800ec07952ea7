// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// Edits between two words: insert, delete, replace, or swap two neighbours.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct Quantity {
  double number = 0;
  std::string_view unit;
};
/// "64 KB" -> {64, "KB"}; the locale has no say.
Quantity split_quantity(std::string_view text, std::string_view what, std::string_view example) {
  const std::string_view trimmed = trim(text);
  Quantity out;
  const auto [end, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), out.number);
  if (error != std::errc{} || !std::isfinite(out.number))
    throw ConfigError(fmt::format("'{}' is not a {}; write for example {}", text, what, example));
  out.unit = trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
  return out;
}

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 10> kByteUnits{{{"", 1},
                                           {"b", 1},
                                           {"kb", 1e3},
                                           {"mb", 1e6},
                                           {"gb", 1e9},
                                           {"tb", 1e12},
                                           {"kib", 0x1p10},
                                           {"mib", 0x1p20},
                                           {"gib", 0x1p30},
                                           {"tib", 0x1p40}}};
constexpr std::array<Unit, 5> kBitUnits{{{"bit", 1.0 / 8},
                                         {"kbit", 1e3 / 8},
                                         {"mbit", 1e6 / 8},
                                         {"gbit", 1e9 / 8},
                                         {"tbit", 1e12 / 8}}};

constexpr std::array<Unit, 5> kTimeUnits{
    {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};

template <std::size_t N>
const Unit* find_unit(const std::array<Unit, N>& units, std::string_view name) {
  const auto it =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  return it == units.end() ? nullptr : &*it;
}

/// Three digits and the largest unit that leaves at least 1 before the point.
std::string scaled(double value, std::span<const std::string_view> units, double step) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  const double size = std::abs(value);
  const int digits = size < 10 ? 2 : size < 100 ? 1 : 0;
  std::string number = fmt::format("{:.{}f}", value, digits);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return fmt::format("{} {}", number == "-0" ? "0" : number, units[unit]);
}

}  // namespace

std::vector<std::string> nearest(std::string_view wrong, std::span<const std::string> names,
                                 int most) {
  const int limit = static_cast<int>(wrong.size() + 1) / 2;
  std::vector<std::pair<int, std::string>> found;
  for (const auto& name : names) {
    const int distance = edit_distance(lower(wrong), lower(name));
    if (distance <= limit) found.emplace_back(distance, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [distance, name] : found)
    if (static_cast<int>(out.size()) < most) out.push_back(std::move(name));
  return out;
}

std::string unknown_name(std::string_view what, std::string_view wrong,
                         std::span<const std::string> names) {
  std::string text = fmt::format("unknown {} '{}'", what, wrong);
  if (const auto near = nearest(wrong, names, 1); !near.empty())
    text += fmt::format("; did you mean '{}'?", near[0]);
  else
    text += ';';
  return text + (names.empty() ? " there are none to choose from" : " valid: " + join(names, ", "));
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(static_cast<double>(bytes), kUnits, 1000);
}

std::string format_rate(double bytes_per_s) {
  static constexpr std::array<std::string_view, 5> kUnits{"bit/s", "kbit/s", "Mbit/s", "Gbit/s",
                                                          "Tbit/s"};
  return scaled(bytes_per_s * 8, kUnits, 1000);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (std::abs(seconds) >= 0.9995)
    return scaled(seconds, std::array<std::string_view, 1>{"s"}, 1000);
  static constexpr std::array<std::string_view, 3> kUnits{"ns", "us", "ms"};
  return scaled(seconds * 1e9, kUnits, 1000);
}

double parse_rate(std::string_view text) {
  constexpr std::string_view kExample = "100mbit, 1gbit or 12.5MB/s";
  const auto [number, unit] = split_quantity(text, "rate", kExample);
  std::string name = lower(unit);
  const bool per_second = name.ends_with("/s");
  if (per_second) name.erase(name.size() - 2);
  const Unit* found = find_unit(kBitUnits, name);
  // "b" could be a bit or a byte, and "mbps" means megabytes to tc(8) and megabits to most people.
  if (!found && per_second && !name.empty() && unit.find('b') == std::string_view::npos)
    found = find_unit(kByteUnits, name);
  if (!found)
    throw ConfigError(
        fmt::format("rate '{}' has no clear unit; write for example {}", text, kExample));
  if (number <= 0) throw ConfigError(fmt::format("a rate must be above 0, got '{}'", text));
  return number * found->factor;
}

double parse_seconds(std::string_view text) {
  constexpr std::string_view kExample = "0.2ms, 50us or 1.5s";
  const auto [number, unit] = split_quantity(text, "time", kExample);
  const Unit* found = find_unit(kTimeUnits, lower(unit));
  if (!found)
    throw ConfigError(
        fmt::format("time '{}' has an unknown unit; write for example {}", text, kExample));
  if (number < 0) throw ConfigError(fmt::format("a time must be at least 0, got '{}'", text));
  return number * found->factor;
}

std::int64_t parse_bytes(std::string_view text) {
  constexpr std::string_view kExample = "25MiB, 64 KB or 1e6";
  const auto [number, unit] = split_quantity(text, "number of bytes", kExample);
  const Unit* found = find_unit(kByteUnits, lower(unit));
  if (!found)
    throw ConfigError(
        fmt::format("'{}' has an unknown unit of bytes; write for example {}", text, kExample));
  const double bytes = number * found->factor;
  if (bytes < 0 || bytes >= 0x1p63)
    throw ConfigError(fmt::format("bytes must be in [0, 2^63), got '{}'", text));
  if (bytes != std::floor(bytes))
    throw ConfigError(fmt::format("'{}' is not a whole number of bytes", text));
  return static_cast<std::int64_t>(bytes);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (std::size_t from = 0;;) {
    const std::size_t at = text.find(separator, from);
    out.emplace_back(text.substr(from, at == std::string_view::npos ? at : at - from));
    if (at == std::string_view::npos) return out;
    from = at + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

}  // namespace thinwire
