// SPDX-License-Identifier: Apache-2.0
// Implementation of the templates in json.h.
#pragma once
#include "thinwire/core/error.h"

namespace thinwire {

template <class T>
T get(const Json& json, const char* key, std::string_view source) {
  const auto it = json.find(key);
  if (it == json.end()) throw DataError(std::string(source) + ": '" + key + "' is missing");
  try {
    return it->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(std::string(source) + ": '" + key + "' has the wrong type: " + it->dump());
  }
}

}  // namespace thinwire
