// SPDX-License-Identifier: Apache-2.0
// How a tensor's name, dtype and shape stand in profile and plan files.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "thinwire/core/json.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

inline Json tensor_to_json(const TensorDesc& tensor) {
  return {{"name", tensor.name}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}};
}

inline TensorDesc tensor_from_json(const Json& json, std::string_view source) {
  TensorDesc out{.name = get<std::string>(json, "name", source),
                 .shape = get<std::vector<std::int64_t>>(json, "shape", source)};
  const auto text = get_or<std::string>(json, "dtype", "f32", source);
  const auto dtype = dtype_from(text);
  if (!dtype) throw DataError(fmt::format("{}: unknown dtype '{}'", source, text));
  out.dtype = *dtype;
  return out;
}

}  // namespace thinwire
