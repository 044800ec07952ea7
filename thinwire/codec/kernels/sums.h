// SPDX-License-Identifier: Apache-2.0
// Codes that a transport adds. As many signed fields of `bits` bits as fit share a word of 64 bits,
// the first one lowest: word = sum of code[k] * 2^(bits k), in arithmetic that wraps. So a sum of
// words is the word of the sums, as long as every sum c of codes keeps -2^(bits-1) <= c <
// 2^(bits-1); no carry is lost between fields, and nothing is decoded on the way. A field never
// lies in two words, since words are added one by one.
#pragma once
#include <bit>
#include <cstdint>
#include <span>

#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/write.h"

namespace thinwire::kernels {

/// The fewest bits for sums over `ranks` ranks of codes in [-levels, levels]: ceil(log2(2 n s +
/// 1)).
constexpr int sum_bits(std::int64_t levels, std::int64_t ranks) {
  return std::bit_width(static_cast<std::uint64_t>(2 * levels * ranks));
}
/// Fields of a word; bits in [2, 32].
constexpr int sums_per_word(int bits) { return 64 / bits; }
/// Words of `count` fields; what is left of the last one is 0.
constexpr std::int64_t sum_words(std::int64_t count, int bits) {
  return (count + sums_per_word(bits) - 1) / sums_per_word(bits);
}

/// The nearest level: code = x s / scale, ties to the even one, cut off at s; a NaN has code s.
/// levels.h rounds by chance.
void round_nearest(std::span<const float> x, Levels levels, std::span<std::int16_t> codes);

/// Every code must fit; `words` must be sum_words() of them.
void pack_sums(std::span<const std::int16_t> codes, int bits, std::span<std::int64_t> words);
/// Any words are fields. `words` must be sum_words() of the codes.
void unpack_sums(std::span<const std::int64_t> words, int bits, std::span<std::int32_t> codes);
/// out = or += code * unit.
void decode_sums(std::span<const std::int64_t> words, int bits, float unit, std::span<float> out,
                 Write mode);

/// The same in plain loops, one field after the other.
namespace reference {
void pack_sums(std::span<const std::int16_t> codes, int bits, std::span<std::int64_t> words);
void unpack_sums(std::span<const std::int64_t> words, int bits, std::span<std::int32_t> codes);
}  // namespace reference

}  // namespace thinwire::kernels
