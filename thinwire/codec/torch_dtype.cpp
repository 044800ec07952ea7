// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/torch_dtype.h"

#include <array>
#include <utility>

namespace thinwire {
namespace {

constexpr std::array<std::pair<DType, c10::ScalarType>, 12> kPairs{{
    {DType::f64, c10::ScalarType::Double},
    {DType::f32, c10::ScalarType::Float},
    {DType::f16, c10::ScalarType::Half},
    {DType::bf16, c10::ScalarType::BFloat16},
    {DType::c64, c10::ScalarType::ComplexFloat},
    {DType::c128, c10::ScalarType::ComplexDouble},
    {DType::i64, c10::ScalarType::Long},
    {DType::i32, c10::ScalarType::Int},
    {DType::i16, c10::ScalarType::Short},
    {DType::i8, c10::ScalarType::Char},
    {DType::u8, c10::ScalarType::Byte},
    {DType::bool8, c10::ScalarType::Bool},
}};

}  // namespace

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kPairs)
    if (theirs == type) return ours;
  return std::nullopt;
}

c10::ScalarType scalar_type_of(DType dtype) {
  return kPairs[static_cast<std::size_t>(dtype)].second;
}

}  // namespace thinwire
