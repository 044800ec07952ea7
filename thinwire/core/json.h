// SPDX-License-Identifier: Apache-2.0
// nlohmann::json with our errors: parse and read with a sentence that names the file and the key.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// Compiled once, with json.cpp, and not anew with every source that holds a value.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace thinwire {

using Json = nlohmann::ordered_json;

Json parse_json(std::string_view text,
                std::string_view source);  ///< DataError naming source and place
Json read_json(const std::string& path);   ///< ConfigError if the file cannot be read
void write_text(const std::string& path,
                std::string_view text);          ///< atomic (temporary, fsync, rename)
std::string read_text(const std::string& path);  ///< ConfigError if the file cannot be read

/// The one compact text of a value; ConfigError if a string in it is not UTF-8.
std::string dump(const Json& json, std::string_view source);
/// As dump, but each element of a top-level array on a line of its own: short, and good to edit and
/// to diff.
std::string dump_lines(const Json& json, std::string_view source);
/// DataError for a member that is none of `keys`, naming the nearest one.
void known_keys(const Json& json, std::initializer_list<const char*> keys, std::string_view source);

/// The member `key` of object `json` as T; DataError that names source, key and what was found.
template <class T>
T get(const Json& json, const char* key, std::string_view source);
/// As get, but `fallback` where the member is missing.
template <class T>
T get_or(const Json& json, const char* key, T fallback, std::string_view source);

}  // namespace thinwire
#include "thinwire/core/json_inl.h"
