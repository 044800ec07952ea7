// SPDX-License-Identifier: Apache-2.0
// One loop, of integers, compiled once for every processor and once for AVX2.
#include "thinwire/codec/kernels/natural.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "thinwire/codec/kernels/simd.h"
#include "thinwire/codec/kernels/wide.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

constexpr int kRoundsOfPhilox = 7;
constexpr std::size_t kBlocks = 8, kElements = 4 * kBlocks;
constexpr std::uint32_t kNoNumber = 0x7f800000;  // and everything above

std::uint8_t exponent_of(float x, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffff;
  const std::uint32_t up = (bits + (random >> 9)) >> 23;
  return static_cast<std::uint8_t>(bits >= kNoNumber ? 255 : std::min(up, 254U));
}

float power_of(std::uint8_t exponent, unsigned negative) {
  const std::uint32_t bits = std::uint32_t{exponent} << 23 | negative << 31;
  return std::bit_cast<float>(exponent == 255 ? bits | 1 : bits);
}

/// One group of elements: the words of eight blocks side by side.
[[gnu::always_inline]] inline void encode_group(const Rng& rng, std::uint64_t group, const float* x,
                                                std::uint8_t* out) {
  std::uint32_t c[4][kBlocks];
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const std::uint64_t index = kBlocks * group + b;
    c[0][b] = static_cast<std::uint32_t>(index);
    c[1][b] = static_cast<std::uint32_t>(index >> 32);
    c[2][b] = rng.stream()[0];
    c[3][b] = rng.stream()[1];
  }
  auto key = rng.key();
  for (int round = 0; round < kRoundsOfPhilox; ++round) {
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const std::uint64_t first = std::uint64_t{0xD2511F53} * c[0][b];
      const std::uint64_t second = std::uint64_t{0xCD9E8D57} * c[2][b];
      c[0][b] = static_cast<std::uint32_t>(second >> 32) ^ c[1][b] ^ key[0];
      c[1][b] = static_cast<std::uint32_t>(second);
      c[2][b] = static_cast<std::uint32_t>(first >> 32) ^ c[3][b] ^ key[1];
      c[3][b] = static_cast<std::uint32_t>(first);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t b = 0; b < kBlocks; ++b)
      out[kBlocks * w + b] = exponent_of(x[kBlocks * w + b], c[w][b]);
}

[[gnu::always_inline]] inline void encode_groups(const Rng& rng, const float* x, std::size_t groups,
                                                 std::uint8_t* out) {
  for (std::size_t g = 0; g < groups; ++g)
    encode_group(rng, g, x + kElements * g, out + kElements * g);
}

[[gnu::always_inline]] inline void decode_eights(const std::uint8_t* exponents,
                                                 const std::uint8_t* signs, std::size_t eights,
                                                 float* out, bool add) {
  for (std::size_t byte = 0; byte < eights; ++byte) {
    const unsigned bits = signs[byte];
    for (std::size_t j = 0; j < 8; ++j) {
      const float value = power_of(exponents[8 * byte + j], bits >> j & 1);
      out[8 * byte + j] = add ? out[8 * byte + j] + value : value;
    }
  }
}

#if TW_WIDE
TW_AVX2 void encode_groups_avx2(const Rng& rng, const float* x, std::size_t groups,
                                std::uint8_t* out) {
  encode_groups(rng, x, groups, out);
}
TW_AVX2 void decode_eights_avx2(const std::uint8_t* exponents, const std::uint8_t* signs,
                                std::size_t eights, float* out, bool add) {
  add ? decode_eights(exponents, signs, eights, out, true)
      : decode_eights(exponents, signs, eights, out, false);
}
#endif

bool wide() { return TW_WIDE && simd() != Simd::scalar; }

void check(std::size_t exponents, std::size_t signs, std::size_t count) {
  if (exponents != count || signs != (count + 7) / 8)
    throw DataError(fmt::format("natural: {} elements have {} bytes and {} of signs, got {} and {}",
                                count, count, (count + 7) / 8, exponents, signs));
}

}  // namespace

void encode_exponents(std::span<const float> x, const RngKey& key,
                      std::span<std::uint8_t> exponents) {
  TW_ASSERT(exponents.size(), ==, x.size());
  const Rng rng(key);
  const std::size_t groups = x.size() / kElements, done = groups * kElements;
  const auto run = [&](const float* from, std::size_t count, std::uint8_t* to) {
#if TW_WIDE
    if (wide()) return encode_groups_avx2(rng, from, count, to);
#endif
    encode_groups(rng, from, count, to);
  };
  run(x.data(), groups, exponents.data());
  if (done == x.size()) return;
  float padded[kElements] = {};
  std::uint8_t out[kElements];
  std::copy(x.begin() + static_cast<std::ptrdiff_t>(done), x.end(), padded);
  encode_group(rng, groups, padded, out);
  std::copy_n(out, x.size() - done, exponents.begin() + static_cast<std::ptrdiff_t>(done));
}

void decode_exponents(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> signs,
                      std::span<float> out, Write mode) {
  check(exponents.size(), signs.size(), out.size());
  const std::size_t eights = out.size() / 8;
#if TW_WIDE
  if (wide())
    decode_eights_avx2(exponents.data(), signs.data(), eights, out.data(), mode == Write::add);
  else
#endif
    decode_eights(exponents.data(), signs.data(), eights, out.data(), mode == Write::add);
  for (std::size_t i = 8 * eights; i < out.size(); ++i) {
    const float value = power_of(exponents[i], signs[i / 8] >> (i % 8) & 1U);
    out[i] = mode == Write::add ? out[i] + value : value;
  }
}

namespace reference {

void encode_exponents(std::span<const float> x, const RngKey& key,
                      std::span<std::uint8_t> exponents) {
  const Rng rng(key);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t index = kBlocks * (i / kElements) + i % kBlocks;
    const auto words =
        philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    rng.stream()[0], rng.stream()[1]},
                   rng.key(), kRoundsOfPhilox);
    exponents[i] = exponent_of(x[i], words[i % kElements / kBlocks]);
  }
}

void decode_exponents(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> signs,
                      std::span<float> out, Write mode) {
  check(exponents.size(), signs.size(), out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float value = power_of(exponents[i], signs[i / 8] >> (i % 8) & 1U);
    out[i] = mode == Write::add ? out[i] + value : value;
  }
}

}  // namespace reference

}  // namespace thinwire::kernels
