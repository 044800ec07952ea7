// SPDX-License-Identifier: Apache-2.0
// The loops over fields are written out for each width, so that shifts are constants: a word then
// takes a few operations a field, which hides behind memory for narrow fields.
#include "thinwire/codec/kernels/sums.h"

#include <algorithm>
#include <array>
#include <utility>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

constexpr int kLeast = 2, kMost = 32;

constexpr std::uint64_t mask_of(int bits) { return (std::uint64_t{1} << bits) - 1; }
/// Half a field in each field: what makes all fields of a sum positive.
constexpr std::uint64_t bias_of(int bits) {
  std::uint64_t bias = 0;
  for (int k = 0; k < sums_per_word(bits); ++k) bias += std::uint64_t{1} << (bits * k + bits - 1);
  return bias;
}

std::uint64_t pack_some(const std::int16_t* codes, int count, int bits) {
  std::uint64_t word = 0;
  for (int k = 0; k < count; ++k)
    word += static_cast<std::uint64_t>(std::int64_t{codes[k]}) << (bits * k);
  return word;
}

std::int32_t field_of(std::uint64_t biased, int bits, int k) {
  return static_cast<std::int32_t>(
      static_cast<std::int64_t>((biased >> (bits * k)) & mask_of(bits)) -
      (std::int64_t{1} << (bits - 1)));
}

template <int kBits>
void pack_as(std::span<const std::int16_t> codes, std::span<std::int64_t> words) {
  constexpr int kEach = sums_per_word(kBits);
  const std::size_t whole = codes.size() / kEach;
  for (std::size_t w = 0; w < whole; ++w) {
    const std::int16_t* from = codes.data() + w * kEach;
    std::uint64_t word = 0;
#pragma GCC unroll 32
    for (int k = 0; k < kEach; ++k)
      word += static_cast<std::uint64_t>(std::int64_t{from[k]}) << (kBits * k);
    words[w] = static_cast<std::int64_t>(word);
  }
  const auto left = static_cast<int>(codes.size() % kEach);
  if (left > 0)
    words[whole] = static_cast<std::int64_t>(pack_some(codes.data() + whole * kEach, left, kBits));
}

template <int kBits, class Each>
void unpack_as(std::span<const std::int64_t> words, std::size_t count, Each each) {
  constexpr int kEach = sums_per_word(kBits);
  const std::size_t whole = count / kEach;
  for (std::size_t w = 0; w < whole; ++w) {
    const std::uint64_t biased = static_cast<std::uint64_t>(words[w]) + bias_of(kBits);
#pragma GCC unroll 32
    for (int k = 0; k < kEach; ++k)
      each(w * kEach + static_cast<std::size_t>(k), field_of(biased, kBits, k));
  }
  for (std::size_t i = whole * kEach; i < count; ++i)
    each(i, field_of(static_cast<std::uint64_t>(words[whole]) + bias_of(kBits), kBits,
                     static_cast<int>(i % kEach)));
}

void check(std::size_t words, std::size_t codes, int bits) {
  TW_ASSERT(bits, >=, kLeast);
  TW_ASSERT(bits, <=, kMost);
  TW_ASSERT(static_cast<std::int64_t>(words), ==,
            sum_words(static_cast<std::int64_t>(codes), bits));
}

/// Calls fn with the width as a constant.
template <class Fn>
void with_width(int bits, Fn fn) {
  const auto one = [&]<int kBits>() {
    if (bits == kBits) fn.template operator()<kBits>();
  };
  [&]<int... kOffsets>(std::integer_sequence<int, kOffsets...>) {
    (one.template operator()<kLeast + kOffsets>(), ...);
  }(std::make_integer_sequence<int, kMost - kLeast + 1>{});
}

}  // namespace

void round_nearest(std::span<const float> x, Levels levels, std::span<std::int16_t> codes) {
  TW_ASSERT(codes.size(), ==, x.size());
  // A power of two keeps the factor finite where the scale is tiny.
  const float before = levels.scale < 0x1p-60F ? 0x1p80F : 1.0F;
  const auto limit = static_cast<float>(levels.count);
  const float factor = levels.scale == 0 ? 0.0F : limit / (levels.scale * before);
  // Adding it leaves the whole part, rounded, in the lowest bits.
  constexpr float kWhole = 0x1.8p23F;
  for (std::size_t i = 0; i < x.size(); ++i) {
    float steps = x[i] * before * factor;
    steps = steps < limit ? steps : limit;
    steps = steps > -limit ? steps : -limit;
    codes[i] = static_cast<std::int16_t>(std::bit_cast<std::int32_t>(steps + kWhole) -
                                         std::bit_cast<std::int32_t>(kWhole));
  }
}

void pack_sums(std::span<const std::int16_t> codes, int bits, std::span<std::int64_t> words) {
  check(words.size(), codes.size(), bits);
  with_width(bits, [&]<int kBits>() { pack_as<kBits>(codes, words); });
}

void unpack_sums(std::span<const std::int64_t> words, int bits, std::span<std::int32_t> codes) {
  check(words.size(), codes.size(), bits);
  with_width(bits, [&]<int kBits>() {
    unpack_as<kBits>(words, codes.size(),
                     [&](std::size_t i, std::int32_t code) { codes[i] = code; });
  });
}

void decode_sums(std::span<const std::int64_t> words, int bits, float unit, std::span<float> out,
                 Write mode) {
  check(words.size(), out.size(), bits);
  with_width(bits, [&]<int kBits>() {
    if (mode == Write::set)
      unpack_as<kBits>(words, out.size(), [&](std::size_t i, std::int32_t code) {
        out[i] = static_cast<float>(code) * unit;
      });
    else
      unpack_as<kBits>(words, out.size(), [&](std::size_t i, std::int32_t code) {
        out[i] += static_cast<float>(code) * unit;
      });
  });
}

namespace reference {

void pack_sums(std::span<const std::int16_t> codes, int bits, std::span<std::int64_t> words) {
  check(words.size(), codes.size(), bits);
  const auto each = static_cast<std::size_t>(sums_per_word(bits));
  for (std::size_t w = 0; w < words.size(); ++w)
    words[w] = static_cast<std::int64_t>(pack_some(
        codes.data() + w * each, static_cast<int>(std::min(each, codes.size() - w * each)), bits));
}

void unpack_sums(std::span<const std::int64_t> words, int bits, std::span<std::int32_t> codes) {
  check(words.size(), codes.size(), bits);
  const auto each = static_cast<std::size_t>(sums_per_word(bits));
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = field_of(static_cast<std::uint64_t>(words[i / each]) + bias_of(bits), bits,
                        static_cast<int>(i % each));
}

}  // namespace reference

}  // namespace thinwire::kernels
