// SPDX-License-Identifier: Apache-2.0
// A few bits an element: x is rounded to a whole number of units, up or down by chance, so that the
// expectation is x. With s levels a side the code c is in [-s, s], its value is c * (scale / s),
// and its field in a packed payload is c + s, least significant bit first, without gaps.
//   code = floor(x * s / scale + u),  u uniform in [0, 1) in steps of 2^-16
// Element i of a tensor draws bits 16 h to 16 h + 15 of word w of block 8 (i / 64) + b, where
// i % 64 = 16 w + 2 b + h: the same numbers in any vector width. Blocks are those of the key's Rng
// (its key, its stream), but of 7 rounds of Philox instead of 10, which saves a quarter of the
// time. Beyond the scale codes are cut off at s; a NaN has code s.
#pragma once
#include <cstdint>
#include <span>

#include "thinwire/codec/write.h"
#include "thinwire/core/rng.h"

namespace thinwire::kernels {

struct Levels {
  float scale = 1;  ///< the magnitude of code s; 0: all codes are 0. A NaN decodes to NaNs
  int count = 7;    ///< s, in [1, 32767]
  /// The value of one unit, as all ranks compute it.
  float unit() const { return scale / static_cast<float>(count); }
};

/// The most levels a side that fit `bits` bits, in [2, 16]: 2^(bits - 1) - 1.
constexpr int levels_of_bits(int bits) { return (1 << (bits - 1)) - 1; }
/// The fewest bits for codes of `count` levels a side, which may be a sum over ranks.
int bits_of_levels(std::int64_t count);
/// Bytes of `count` fields of `bits` bits.
constexpr std::int64_t packed_bytes(std::int64_t count, int bits) { return (count * bits + 7) / 8; }

/// The largest |x|; a NaN if there is one; 0 if there is no element.
float max_abs(std::span<const float> x);
/// memory += x, and the largest |memory|, in one pass.
float accumulate_max_abs(std::span<float> memory, std::span<const float> x);
/// The 2-norm; squares are summed in double, in the lanes of lanes.h.
double norm2(std::span<const float> x);

/// Codes as integers, for transports that add integers. count must fit the type.
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int8_t> codes);
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int16_t> codes);
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int32_t> codes);

/// out = or += code * unit.
void decode_codes(std::span<const std::int8_t> codes, float unit, std::span<float> out, Write mode);
void decode_codes(std::span<const std::int16_t> codes, float unit, std::span<float> out,
                  Write mode);
void decode_codes(std::span<const std::int32_t> codes, float unit, std::span<float> out,
                  Write mode);

/// Rounds and packs; `bits` in [2, 16] with 2 s < 2^bits.
void encode_levels(std::span<const float> x, Levels levels, const RngKey& key, int bits,
                   std::span<std::uint8_t> packed);
/// The same, and leaves in x what the decoded values miss.
void encode_levels_residual(std::span<float> x, Levels levels, const RngKey& key, int bits,
                            std::span<std::uint8_t> packed);
/// The decoder. DataError for a wrong number of bytes or a field above 2 s; `out` may then be
/// partly written.
void decode_levels(std::span<const std::uint8_t> packed, int bits, Levels levels,
                   std::span<float> out, Write mode);

/// Any fields of `bits` bits in [1, 16], which must fit.
void pack_fields(std::span<const std::uint16_t> fields, int bits, std::span<std::uint8_t> packed);
/// DataError for a wrong number of bytes, or bits that are not 0 past the last field.
void unpack_fields(std::span<const std::uint8_t> packed, int bits, std::span<std::uint16_t> fields);

/// The same in plain loops.
namespace reference {
float max_abs(std::span<const float> x);
float accumulate_max_abs(std::span<float> memory, std::span<const float> x);
double norm2(std::span<const float> x);
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int16_t> codes);
}  // namespace reference

}  // namespace thinwire::kernels
