// SPDX-License-Identifier: Apache-2.0
// Powers of two: the same bits in every vector width, unbiased with the variance of the formula.
#include "thinwire/codec/kernels/natural.h"

#include <gtest/gtest.h>

#include "tests/codec/kernels/values.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Bytes8 = std::vector<std::uint8_t>;

struct Coded {
  explicit Coded(std::span<const float> x, const RngKey& key = {.seed = 4})
      : exponents(x.size()), signs((x.size() + 7) / 8) {
    encode_exponents(x, key, exponents);
    pack_signs(x, signs);
  }
  std::vector<float> values() const {
    std::vector<float> out(exponents.size());
    decode_exponents(exponents, signs, out, Write::set);
    return out;
  }
  Bytes8 exponents, signs;
};

}  // namespace

TEST(Natural, VectorCodeEqualsThePlainLoops) {
  const RngKey key{.seed = 5, .exchange = 1, .step = 1LL << 40, .rank = 3};
  test::with_all_values([&](const std::vector<float>& x) {
    std::vector<float> set(x.size()), out = x;
    const Coded coded(x, key);
    Bytes8 wanted(x.size());
    reference::encode_exponents(x, key, wanted);
    ASSERT_EQ(coded.exponents, wanted);
    std::vector<float> plain(x.size()), sum = x;
    reference::decode_exponents(wanted, coded.signs, plain, Write::set);
    reference::decode_exponents(wanted, coded.signs, sum, Write::add);
    decode_exponents(coded.exponents, coded.signs, set, Write::set);
    decode_exponents(coded.exponents, coded.signs, out, Write::add);
    test::expect_same(set, plain);
    test::expect_same(out, sum);
  });
}

TEST(Natural, RoundsToThePowersBesideTheValue) {
  const auto x = test::values(9000, test::Kind::normal, 2);
  const auto out = Coded(x).values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0) {
      ASSERT_EQ(out[i], 0);
      continue;
    }
    const float below = std::exp2(std::floor(std::log2(std::fabs(x[i]))));
    ASSERT_EQ(std::signbit(out[i]), std::signbit(x[i]));
    ASSERT_TRUE(std::fabs(out[i]) == below || std::fabs(out[i]) == 2 * below) << x[i];
  }
}

TEST(Natural, PowersAreKeptAndLimitsHold) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> x{
      1, -2, 0x1p-126F, 0x1p127F, Limits::max(), 0, Limits::infinity(), Limits::quiet_NaN()};
  const auto out = Coded(x).values();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(out[i], x[i]);
  EXPECT_EQ(out[4], 0x1p127F) << "never infinite";
  EXPECT_EQ(out[5], 0);
  EXPECT_TRUE(std::isnan(out[6]) && std::isnan(out[7]));
}

TEST(Natural, MeanAndVarianceAreThoseOfTheFormula) {
  // (|x| / 2^e - 1) (2 - |x| / 2^e) 2^2e, at most x^2 / 8 where |x| = 4/3 2^e.
  const std::vector<float> x{1.5F, -1.25F, 4.0F / 3, 3.0F, 0x1p-128F};
  const double variance[] = {0.25, 0.1875, 2.0 / 9, 1, 0.25 * 0.75 * 0x1p-252};
  EXPECT_NEAR(variance[2], 16.0 / 9 / 8, 1e-12) << "the bound is reached";
  constexpr int kDraws = 100'000;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const std::vector<float> many(kDraws, x[j]);
    const auto out = Coded(many, {.seed = j}).values();
    double sum = 0, squares = 0;
    for (const float each : out) {
      sum += each;
      squares += (double{each} - double{x[j]}) * (double{each} - double{x[j]});
    }
    EXPECT_NEAR(sum / kDraws, x[j], 4 * std::sqrt(variance[j] / kDraws));
    EXPECT_NEAR(squares / kDraws, variance[j], 0.02 * variance[j]);
  }
}

TEST(Natural, WrongLengthsAreRefused) {
  std::vector<float> out(9);
  const Bytes8 nine(9), two(2), one(1);
  EXPECT_NO_THROW(decode_exponents(nine, two, out, Write::set));
  EXPECT_THROW(decode_exponents(nine, one, out, Write::set), DataError);
  EXPECT_THROW(decode_exponents(two, two, out, Write::set), DataError);
}

}  // namespace thinwire::kernels
