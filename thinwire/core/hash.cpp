// SPDX-License-Identifier: Apache-2.0
// hash_bytes is XXH64 (Yann Collet, "xxHash fast digest algorithm", specification 0.1.1), written
// from its description: 8 bytes a multiplication on every machine, little-endian reads everywhere.
#include <bit>
#include <cstring>

#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

constexpr std::uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F,
                        kP3 = 0x165667B19E3779F9, kP4 = 0x85EBCA77C2B2AE63,
                        kP5 = 0x27D4EB2F165667C5;

template <class T>
std::uint64_t load(const unsigned char* at) {
  static_assert(std::endian::native == std::endian::little, "the digest reads little-endian words");
  T word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
std::uint64_t lane(std::uint64_t sum, std::uint64_t word) {
  return std::rotl(sum + word * kP2, 31) * kP1;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::int64_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::int64_t left = bytes;
  std::uint64_t hash = seed + kP5;
  if (left >= 32) {
    std::array<std::uint64_t, 4> sums{seed + kP1 + kP2, seed + kP2, seed, seed - kP1};
    for (; left >= 32; left -= 32)
      for (auto& sum : sums) {
        sum = lane(sum, load<std::uint64_t>(at));
        at += 8;
      }
    hash = std::rotl(sums[0], 1) + std::rotl(sums[1], 7) + std::rotl(sums[2], 12) +
           std::rotl(sums[3], 18);
    for (const auto sum : sums) hash = (hash ^ lane(0, sum)) * kP1 + kP4;
  }
  hash += static_cast<std::uint64_t>(bytes);
  for (; left >= 8; left -= 8, at += 8)
    hash = std::rotl(hash ^ lane(0, load<std::uint64_t>(at)), 27) * kP1 + kP4;
  if (left >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(at) * kP1), 23) * kP2 + kP3;
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) hash = std::rotl(hash ^ (*at * kP5), 11) * kP1;
  hash = (hash ^ (hash >> 33)) * kP2;
  hash = (hash ^ (hash >> 29)) * kP3;
  return hash ^ (hash >> 32);
}

}  // namespace thinwire
