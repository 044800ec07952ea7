// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: the value depends on (seed, exchange, step, rank) and the position
// alone, so any rank can draw any other rank's numbers, in any order, on any number of threads.
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC
// 2011).
#pragma once
#include <array>
#include <cstdint>

namespace thinwire {

/// The generator itself: a bijection of 128-bit counters for every 64-bit key. Seven rounds are the
/// fewest that pass the authors' tests; ten are their choice, and Rng's.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key, int rounds = 10);

/// One stream of numbers, named by what it is for.
struct RngKey {
  std::uint64_t seed = 0;
  std::int32_t exchange = 0;
  std::int64_t step = 0;
  std::int32_t rank = 0;  ///< -1: shared by all ranks
};

class Rng {
 public:
  explicit Rng(const RngKey& key);
  std::array<std::uint32_t, 4> block(
      std::uint64_t index) const;  ///< four words at position 4*index
  /// block(index) is philox4x32({low, high of index, stream[0], stream[1]}, key), for vector code.
  const std::array<std::uint32_t, 2>& key() const { return key_; }
  const std::array<std::uint32_t, 2>& stream() const { return stream_; }
  std::uint32_t next_u32();
  std::uint64_t next_u64();
  double uniform();                      ///< [0, 1), 53 bits
  std::uint64_t below(std::uint64_t n);  ///< [0, n), unbiased; n >= 1
  double normal();                       ///< mean 0, deviation 1

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> stream_;
  std::uint64_t position_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

/// A 64-bit hash of bytes, the same on every machine (used for digests and parameter hashes).
std::uint64_t hash_bytes(const void* data, std::int64_t bytes, std::uint64_t seed = 0);

}  // namespace thinwire
