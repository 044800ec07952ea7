// SPDX-License-Identifier: Apache-2.0
// Packed indices are read back, have the size stated before, and no wrong byte passes.
#include "thinwire/codec/kernels/indices.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Indices = std::vector<std::uint32_t>;
using Packed = std::vector<std::uint8_t>;

Indices random_indices(std::mt19937& random, std::int64_t n, std::int64_t k) {
  Indices all(static_cast<std::size_t>(n)), out;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
  std::sample(all.begin(), all.end(), std::back_inserter(out), k, random);
  return out;
}

Packed pack(const Indices& indices, std::int64_t n) {
  Packed packed(static_cast<std::size_t>(index_bytes(n, static_cast<std::int64_t>(indices.size()))),
                0xAA);
  pack_indices(indices, n, packed);
  return packed;
}

RC_GTEST_PROP(Indices, ReadBackAsWritten, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  const std::int64_t n = random() % 5000, k = n == 0 ? 0 : random() % (n + 1);
  const Indices indices = random_indices(random, n, random() % 4 == 0 ? k : k / 50);
  const Packed packed = pack(indices, n);
  Indices back(indices.size());
  unpack_indices(packed, n, back);
  RC_ASSERT(back == indices);
}

RC_GTEST_PROP(Indices, AFlippedBitIsRefusedOrMeansOtherIndices, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  const std::int64_t n = 1 + random() % 2000;
  const Indices indices = random_indices(random, n, 1 + random() % n);
  Packed packed = pack(indices, n);
  packed[random() % packed.size()] ^= static_cast<std::uint8_t>(1U << (random() % 8));
  Indices back(indices.size());
  try {
    unpack_indices(packed, n, back);
  } catch (const DataError&) {
    return;
  }
  RC_ASSERT(pack(back, n) == packed);  // so there is one payload for each set
  RC_ASSERT(back != indices);
}

TEST(Indices, LargestOnesFit) {
  const std::int64_t n = (std::int64_t{1} << 32) - 1;
  const Indices indices{0, 1, 77, 1U << 31, 0xfffffffe};
  Indices back(indices.size());
  unpack_indices(pack(indices, n), n, back);
  EXPECT_EQ(back, indices);
}

TEST(Indices, SizesAreKnownBefore) {
  EXPECT_EQ(index_bytes(1000, 0), 0);
  EXPECT_EQ(index_bytes(0, 0), 0);
  EXPECT_EQ(index_bytes(1000, 970), 125);  // a bitmap
  EXPECT_TRUE(index_format(1000, 970).bitmap);
  EXPECT_LE(index_bytes(1'000'000, 1), 4);
  // One in a hundred: 8.08 bits an index are the least that any code needs for all sets.
  const std::int64_t n = 10'020'874, k = n / 100;
  const double bits = 8.0 * static_cast<double>(index_bytes(n, k)) / static_cast<double>(k);
  EXPECT_LT(bits, 8.6);
  EXPECT_GT(bits, 8.08);
}

TEST(Indices, IsNeverLongerThanABitmap) {
  for (std::int64_t n = 1; n < 300; ++n)
    for (std::int64_t k = 0; k <= n; ++k) EXPECT_LE(index_bytes(n, k), (n + 7) / 8);
}

TEST(Indices, WrongBytesAreRefused) {
  const Indices indices{3, 500, 999};
  const Packed packed = pack(indices, 1000);
  Indices back(3);
  EXPECT_THROW(unpack_indices(std::span(packed).first(packed.size() - 1), 1000, back), DataError);
  EXPECT_THROW(unpack_indices(Packed(packed.size(), 0), 1000, back), DataError);
  EXPECT_THROW(unpack_indices(Packed(packed.size(), 0xff), 1000, back), DataError);
  Indices more(20);
  EXPECT_THROW(unpack_indices(packed, 10, more), DataError);
  const Packed all_ones(125, 0xff);  // a bitmap of 1000, of which 970 should be set
  Indices many(970);
  EXPECT_THROW(unpack_indices(all_ones, 1000, many), DataError);
  // Equal indices: the same lower part twice under one upper part.
  const IndexFormat format = index_format(1000, 2);
  Packed equal(static_cast<std::size_t>(format.bytes), 0);
  equal[static_cast<std::size_t>(format.low_bytes)] = 0b11;
  Indices two(2);
  EXPECT_THROW(unpack_indices(equal, 1000, two), DataError);
}

}  // namespace
}  // namespace thinwire::kernels
