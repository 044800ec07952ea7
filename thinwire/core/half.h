// SPDX-License-Identifier: Apache-2.0
// The two 16-bit float formats in plain integer arithmetic: exact to f32, and back rounded to
// nearest, ties to even. The same bits on every machine.
#pragma once
#include <bit>
#include <cstdint>

namespace thinwire {

inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // stays a NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinite, or a NaN, which becomes a quiet one as processors make it
    const std::uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((rest & 0x3ffu) << 13));
  }
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  // Subnormal: rest counts steps of 2^-24, which f32 holds exactly.
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u)  // stays a NaN, with the bits that fit, as processors do it
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((rest >> 13) & 0x1ffu));
  if (rest >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (rest < 0x38800000u) {  // below 2^-14: the addition rounds to steps of 2^-24
    const float steps = std::bit_cast<float>(rest) + 0.5f;  // one step of f32 at 0.5 is 2^-24
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(steps) - 0x3f000000u));
  }
  const std::uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace thinwire
