// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/rng.h"

#include <cmath>
#include <numbers>

namespace thinwire {
namespace {

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key, int rounds) {
  constexpr std::uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = kMultiply0 * counter[0], b = kMultiply1 * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// (exchange, step, rank) has 128 bits and Philox is a bijection of 128 bits, so under one seed two
// different streams never share both words of the key and of the stream.
Rng::Rng(const RngKey& key) {
  const auto step = static_cast<std::uint64_t>(key.step);
  const auto mixed = philox4x32({low(step), high(step), static_cast<std::uint32_t>(key.exchange),
                                 static_cast<std::uint32_t>(key.rank)},
                                {low(key.seed), high(key.seed)});
  key_ = {mixed[0], mixed[1]};
  stream_ = {mixed[2], mixed[3]};
}

std::array<std::uint32_t, 4> Rng::block(std::uint64_t index) const {
  return philox4x32({low(index), high(index), stream_[0], stream_[1]}, key_);
}

std::uint32_t Rng::next_u32() {
  if (position_ % 4 == 0) words_ = block(position_ / 4);
  return words_[position_++ % 4];
}

std::uint64_t Rng::next_u64() {
  const std::uint64_t first = next_u32();
  return first | (static_cast<std::uint64_t>(next_u32()) << 32);
}

double Rng::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

std::uint64_t Rng::below(std::uint64_t n) {
  // The first 2^64 mod n values are dropped, so that every remainder has as many values as every
  // other.
  const std::uint64_t unfair = (0 - n) % n;
  for (;;) {
    const std::uint64_t x = next_u64();
    if (x >= unfair) return x % n;
  }
}

double Rng::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // 1 - u is never 0
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace thinwire
