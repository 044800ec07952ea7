// SPDX-License-Identifier: Apache-2.0
// Keys come back as they were, whatever they are, in the bits that the best four widths take.
#include "thinwire/codec/kernels/keys.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Keys = std::vector<std::uint32_t>;
using Packed = std::vector<std::uint8_t>;

Packed packed(const Keys& keys) {
  Packed out;
  pack_keys(keys, out);
  return out;
}

Keys read_back(const Packed& bytes, std::size_t count, std::int64_t n) {
  Keys out(count);
  EXPECT_EQ(unpack_keys(bytes, n, out), bytes.size());
  return out;
}

/// One key in a hundred.
Keys sparse(std::size_t count) {
  std::mt19937 random(5);
  std::geometric_distribution<std::uint32_t> gap(0.01);
  Keys out;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    next += gap(random);
    out.push_back(next++);
  }
  return out;
}

}  // namespace

TEST(Keys, EmptySingleConsecutiveAndFarApartComeBack) {
  Keys consecutive(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) consecutive[i] = 77 + i;
  constexpr std::int64_t kAll = std::int64_t{1} << 32;
  for (const Keys& keys : {Keys{}, Keys{0}, Keys{0xffffffff}, Keys{0, 0xffffffff}, consecutive,
                           Keys{1, 2, 3, 0x80000000, 0xfffffffe}})
    EXPECT_EQ(read_back(packed(keys), keys.size(), kAll), keys);
  EXPECT_EQ(packed({}).size(), 4U);
  EXPECT_LE(packed(consecutive).size(), 4U + 250 + 2) << "differences of 0 take no bits";
}

RC_GTEST_PROP(Keys, AnySetComesBack, (const std::set<std::uint32_t>& set)) {
  const Keys keys(set.begin(), set.end());
  const std::int64_t n = keys.empty() ? 1 : std::int64_t{keys.back()} + 1;
  RC_ASSERT(read_back(packed(keys), keys.size(), n) == keys);
}

TEST(Keys, BitsAtOnePercentAreThoseOfTheFormula) {
  const Keys keys = sparse(200'000);
  const KeyHistogram histogram = key_histogram(keys);
  const auto each = [&](const KeyWidths& widths) {
    return static_cast<double>(key_bits(histogram, widths)) / 200'000;
  };
  EXPECT_NEAR(each({8, 16, 24, 32}), 10.63, 0.05);
  EXPECT_NEAR(each({5, 7, 9, 20}), 9.08, 0.05);
  const double best = each(best_key_widths(histogram));
  EXPECT_LE(best, each({5, 7, 9, 20}));
  EXPECT_GT(best, 8.08) << "their entropy";
  EXPECT_NEAR(static_cast<double>(packed(keys).size()) * 8 / 200'000, best, 0.01);
}

TEST(Keys, TheWidthsAreTheBestOfAll) {
  KeyHistogram histogram{};
  histogram[0] = 50;
  histogram[3] = 400;
  histogram[5] = 30;
  histogram[9] = 200;
  histogram[17] = 3;
  const std::int64_t least = key_bits(histogram, best_key_widths(histogram));
  for (int a = 0; a <= 17; ++a)
    for (int b = a; b <= 17; ++b)
      for (int c = b; c <= 17; ++c) EXPECT_LE(least, key_bits(histogram, {a, b, c, 17}));
}

TEST(Keys, OtherBytesAreRefused) {
  const Keys keys = sparse(100);
  const Packed good = packed(keys);
  Keys out(100);
  EXPECT_THROW(unpack_keys(good, keys.back(), out), DataError) << "a key that is too large";
  EXPECT_THROW(unpack_keys(std::span(good).first(good.size() - 1), 1 << 20, out), DataError);
  EXPECT_THROW(unpack_keys(std::span(good).first(3), 1 << 20, out), DataError);
  Packed wrong = good;
  wrong[3] = 33;
  EXPECT_THROW(unpack_keys(wrong, 1 << 20, out), DataError);
  wrong = good;
  wrong[0] = static_cast<std::uint8_t>(wrong[1] + 1);
  EXPECT_THROW(unpack_keys(wrong, 1 << 20, out), DataError) << "widths that fall";
}

}  // namespace thinwire::kernels
