// SPDX-License-Identifier: Apache-2.0
// Signs in vector code against the plain loops, against known bits, and against counted votes.
#include "thinwire/codec/kernels/signs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/codec/kernels/values.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using test::expect_same;
using test::Unaligned;
using Bytes8 = std::vector<std::uint8_t>;

Bytes8 bits_for(std::size_t count) {
  return Bytes8(static_cast<std::size_t>(sign_bytes(static_cast<std::int64_t>(count))), 0xAA);
}

TEST(Signs, ZerosAndNaNsArePositive) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{0.0F, -0.0F, -1.0F, nan, -nan, -1e-45F, 2.0F, -INFINITY, -3.0F};
  Bytes8 bits(2);
  test::with_each_simd([&] {
    pack_signs(x, bits);
    EXPECT_EQ(bits, (Bytes8{0b10100100, 0b1}));
  });
}

TEST(Signs, VectorCodeEqualsThePlainLoops) {
  test::with_all_values([](const std::vector<float>& x) {
    Bytes8 wanted = bits_for(x.size()), got = wanted;
    Unaligned<float> input(x);
    reference::pack_signs(x, wanted);
    pack_signs(input.span(), got);
    ASSERT_EQ(got, wanted);

    const SignValues values{0.75F, -1.5F};
    std::vector<float> wanted_rest = x;
    reference::pack_signs_residual(wanted_rest, values, wanted);
    std::fill(got.begin(), got.end(), std::uint8_t{0x55});
    pack_signs_residual(input.span(), values, got);
    ASSERT_EQ(got, wanted);
    expect_same(input.span(), wanted_rest);

    for (const Write mode : {Write::set, Write::add}) {
      std::vector<float> wanted_out = x;
      Unaligned<float> out(x);
      reference::decode_signs(wanted, values, wanted_out, mode);
      decode_signs(wanted, values, out.span(), mode);
      expect_same(out.span(), wanted_out);
    }
  });
}

TEST(Signs, SumsHaveOneOrder) {
  test::with_all_values([](const std::vector<float>& x) {
    const double wanted = reference::sum_abs(x), got = sum_abs(x);
    if (!std::isnan(wanted) || !std::isnan(got)) {
      ASSERT_EQ(got, wanted);
    }
    std::vector<float> wanted_memory = test::values(x.size(), test::Kind::normal, 5);
    Unaligned<float> memory(wanted_memory);
    const double wanted_sum = reference::accumulate_sum_abs(wanted_memory, x);
    const double sum = accumulate_sum_abs(memory.span(), x);
    expect_same(memory.span(), wanted_memory);
    if (!std::isnan(wanted_sum) || !std::isnan(sum)) {
      ASSERT_EQ(sum, wanted_sum);
    }
    const SignSums sums = sums_by_sign(x), plain = reference::sums_by_sign(x);
    ASSERT_EQ(sums.negatives, plain.negatives);
    if (!std::isnan(plain.other)) {
      ASSERT_EQ(sums.other, plain.other);
    }
    if (!std::isnan(plain.negative)) {
      ASSERT_EQ(sums.negative, plain.negative);
    }
  });
}

TEST(Signs, SumsKeepTheirLanes) {
  // 2^53 + 1 + 1 is 2^53 when added one by one, and more when the ones share another lane.
  std::vector<float> x(1033, 0.0F);
  x[0] = 0x1p53F;
  x[8] = 1;     // lane 0
  x[1024] = 1;  // the first lane of the second page, with the next
  x[1032] = 1;
  test::with_each_simd([&] { EXPECT_EQ(sum_abs(x), 0x1p53 + 2); });
}

TEST(KnownFailures, KF59_OneSideEmpty) {
  const auto two_means = [](const std::vector<float>& x) {
    const SignSums sums = sums_by_sign(x);
    const auto n = static_cast<std::int64_t>(x.size());
    const SignValues values{
        sums.negatives == n
            ? 0.0F
            : static_cast<float>(sums.other / static_cast<double>(n - sums.negatives)),
        sums.negatives == 0
            ? 0.0F
            : static_cast<float>(sums.negative / static_cast<double>(sums.negatives))};
    Bytes8 bits = bits_for(x.size());
    std::vector<float> out(x.size());
    pack_signs(x, bits);
    decode_signs(bits, values, out, Write::set);
    return out;
  };
  test::with_each_simd([&] {
    EXPECT_EQ(two_means({1, 2, -3, -5}), (std::vector<float>{1.5, 1.5, -4, -4}));
    EXPECT_EQ(two_means({1, 3}), (std::vector<float>{2, 2}));
    EXPECT_EQ(two_means({-1, -3}), (std::vector<float>{-2, -2}));
  });
}

TEST(KnownFailures, KF29_OneBitAnElement) {
  EXPECT_EQ(sign_bytes(1025), 129);
  EXPECT_EQ(sign_bytes(10'020'874), 1'252'610);
}

TEST(Signs, WrongNumberOfBytesIsRefused) {
  std::vector<float> out(9);
  EXPECT_THROW(decode_signs(Bytes8(1), {}, out, Write::set), DataError);
  EXPECT_THROW(decode_signs(Bytes8(3), {}, out, Write::set), DataError);
}

TEST(Majority, TieIsPositive) {
  const Bytes8 a{0b0011}, b{0b0101};
  const std::vector<std::span<const std::uint8_t>> votes{a, b};
  Bytes8 out(1);
  majority_of_signs(votes, 4, out);
  EXPECT_EQ(out, Bytes8{0b0001});
}

RC_GTEST_PROP(Majority, EqualsCountedVotes, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  const std::size_t ranks = random() % 20, count = random() % 700;
  std::vector<Bytes8> all;
  std::vector<std::span<const std::uint8_t>> votes;
  for (std::size_t r = 0; r < ranks; ++r) {
    Bytes8 bits = bits_for(count);
    for (auto& byte : bits) byte = static_cast<std::uint8_t>(random());
    all.push_back(std::move(bits));
  }
  for (const Bytes8& each : all) votes.emplace_back(each);
  Bytes8 got = bits_for(count), wanted = got;
  majority_of_signs(votes, static_cast<std::int64_t>(count), got);
  reference::majority_of_signs(votes, static_cast<std::int64_t>(count), wanted);
  RC_ASSERT(got == wanted);
}

}  // namespace
}  // namespace thinwire::kernels
