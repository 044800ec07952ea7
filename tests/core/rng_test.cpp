// SPDX-License-Identifier: Apache-2.0
// Philox against the known answers published with Random123, XXH64 against its specification's.
#include "thinwire/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace thinwire {
namespace {

using Block = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}, 7),
            (Block{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}, 7),
            (Block{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
}

TEST(Rng, WordsAreTheBlocksInOrder) {
  Rng rng({.seed = 7, .exchange = 1, .step = 5, .rank = 2});
  for (std::uint64_t i = 0; i < 5; ++i)
    for (const auto word : rng.block(i)) EXPECT_EQ(rng.next_u32(), word);
}

TEST(Rng, EveryPartOfTheKeyMakesAnotherStream) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 40})
    for (std::int32_t exchange : {0, 1, 1 << 20})
      for (std::int64_t step : {0ll, 1ll, 1ll << 40})
        for (std::int32_t rank : {-1, 0, 1})
          seen.insert(Rng({seed, exchange, step, rank}).next_u64());
  EXPECT_EQ(seen.size(), 81u);
}

TEST(Rng, SameKeySameNumbers) {
  Rng a({.seed = 3, .step = 9}), b({.seed = 3, .step = 9});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next_u64(), b.next_u64());
}

TEST(Rng, UniformNormalAndBelowHaveTheirMoments) {
  Rng rng({.seed = 1});
  constexpr int kDraws = 200'000;
  double sum = 0, square = 0, normal = 0, normal_square = 0;
  std::array<int, 7> counts{};
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.uniform(), z = rng.normal();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    square += u * u;
    normal += z;
    normal_square += z * z;
    ++counts[rng.below(7)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(square / kDraws, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal / kDraws, 0, 0.015);
  EXPECT_NEAR(normal_square / kDraws, 1, 0.02);
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7.0, 800);
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(HashBytes, KnownAnswers) {
  const auto hash = [](const std::string& text, std::uint64_t seed = 0) {
    return hash_bytes(text.data(), static_cast<std::int64_t>(text.size()), seed);
  };
  EXPECT_EQ(hash(""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(hash("a"), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(hash("abc"), 0x44BC2CF5AD770999u);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1u);
  EXPECT_NE(hash("abc", 1), hash("abc"));
}

TEST(HashBytes, EveryByteCounts) {
  std::string text(77, 'x');
  std::set<std::uint64_t> seen{hash_bytes(text.data(), 77)};
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = 'y';
    seen.insert(hash_bytes(text.data(), 77));
    text[i] = 'x';
  }
  EXPECT_EQ(seen.size(), 78u);
}

}  // namespace
}  // namespace thinwire
