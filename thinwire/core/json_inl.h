// SPDX-License-Identifier: Apache-2.0
// Implementation of the templates in json.h.
#pragma once
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "thinwire/core/error.h"

namespace thinwire {
namespace json_detail {

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// nlohmann takes 2.7 for 2, 300 for a byte's 44 and true for 1; a file a person edits deserves a
/// refusal.
template <class T>
bool fits(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.get<std::uint64_t>());
    if (value.is_number_integer()) return std::in_range<T>(value.get<std::int64_t>());
    if (!value.is_number_float()) return false;
    const double number = value.get<double>();  // 1e6 is a whole number too
    return number == std::floor(number) && std::abs(number) <= 0x1p53 &&
           std::in_range<T>(static_cast<std::int64_t>(number));
  } else if constexpr (std::is_floating_point_v<T>) {
    return value.is_number() && std::isfinite(value.get<T>());
  } else if constexpr (kIsVector<T>) {
    if (!value.is_array()) return false;
    for (const auto& item : value)
      if (!fits<typename T::value_type>(item)) return false;
    return true;
  } else {
    return true;
  }
}

}  // namespace json_detail

template <class T>
T get(const Json& json, const char* key, std::string_view source) {
  if (!json.is_object())
    throw DataError(std::string(source) + ": an object with '" + key + "' was expected, found " +
                    json.type_name());
  const auto it = json.find(key);
  if (it == json.end()) throw DataError(std::string(source) + ": '" + key + "' is missing");
  try {
    if (json_detail::fits<T>(*it)) return it->template get<T>();
  } catch (const nlohmann::json::exception&) {
    // falls through to the same sentence
  }
  throw DataError(std::string(source) + ": '" + key + "' has the wrong type: " + it->dump());
}

template <class T>
T get_or(const Json& json, const char* key, T fallback, std::string_view source) {
  if (json.is_object() && !json.contains(key)) return fallback;
  return get<T>(json, key, source);
}

}  // namespace thinwire
