// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: the vector code of levels.h.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/write.h"

namespace thinwire::kernels {

inline constexpr int kRounds = 7;          // of Philox, whose time is most of that of rounding
inline constexpr std::size_t kGroup = 64;  // elements that draw from the same eight blocks

/// How x becomes a code: ((x * before) * factor, cut off at +-limit, to the nearest integer, plus
/// 16 random bits) / 2^16, rounded down. `before` is a power of two that keeps `factor` finite.
struct Rounding {
  float before = 1, factor = 0, limit = 0, unit = 0;
  std::array<std::uint32_t, 2> stream{};
  std::array<std::uint64_t, 2> keys[kRounds];  ///< of the rounds of Philox
};

/// Whole groups only; `group` is the number of the first. Where `rest` is not null, rest -= value.
void round_groups_avx2(const Rounding& rounding, const float* x, std::size_t groups,
                       std::uint64_t group, std::int16_t* codes, float* rest);
void round_groups_avx512(const Rounding& rounding, const float* x, std::size_t groups,
                         std::uint64_t group, std::int16_t* codes, float* rest);

/// Fields code + offset of at most 8 bits. Both do a multiple of 8 elements and return how many;
/// the first elements only, as some bytes beyond are written or read.
std::size_t pack_avx2(const std::int16_t* codes, std::size_t count, int offset, int bits,
                      std::uint8_t* packed);
/// `largest` becomes at least the largest field.
std::size_t decode_avx2(const std::uint8_t* packed, int bits, int offset, float unit, float* out,
                        std::size_t count, Write mode, unsigned& largest);

std::size_t max_abs_avx2(float* memory, const float* x, std::size_t count, std::int32_t& largest);
std::size_t squares_avx2(const float* x, std::size_t count, double (&lanes)[kLanes]);

}  // namespace thinwire::kernels
