// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/types.h"

#include <array>

namespace thinwire {
namespace {

struct DTypeFact {
  std::string_view name;
  Bytes bytes;
};
constexpr std::array<DTypeFact, 12> kDTypes{{{"f64", 8},
                                             {"f32", 4},
                                             {"f16", 2},
                                             {"bf16", 2},
                                             {"c64", 8},
                                             {"c128", 16},
                                             {"i64", 8},
                                             {"i32", 4},
                                             {"i16", 2},
                                             {"i8", 1},
                                             {"u8", 1},
                                             {"bool8", 1}}};
constexpr std::array<std::string_view, 11> kCombines{"sum", "mean",    "mean_of_senders", "max",
                                                     "min", "bit_and", "bit_or",          "vote",
                                                     "mix", "concat",  "replace"};

}  // namespace

Bytes dtype_bytes(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }
std::string_view to_string(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::string_view to_string(Combine combine) { return kCombines[static_cast<std::size_t>(combine)]; }

std::optional<DType> dtype_from(std::string_view text) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<Combine> combine_from(std::string_view text) {
  for (std::size_t i = 0; i < kCombines.size(); ++i)
    if (kCombines[i] == text) return static_cast<Combine>(i);
  return std::nullopt;
}

}  // namespace thinwire
