// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: the same codes in every vector width, unbiased, with the variance of the
// formula, and packed in as many bits as promised.
#include "thinwire/codec/kernels/levels.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/codec/kernels/values.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using test::expect_same;
using test::Kind;
using test::Unaligned;

std::vector<std::uint8_t> room(std::size_t count, int bits) {
  return std::vector<std::uint8_t>(
      static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(count), bits)), 0xAA);
}

TEST(Levels, VectorCodeEqualsThePlainLoops) {
  const RngKey key{.seed = 5, .exchange = 1, .step = 1LL << 40, .rank = 3};
  test::with_all_values([&](const std::vector<float>& x) {
    Unaligned<float> input(x);
    for (const float scale : {max_abs(x), 1.0F, 0.0F, 1e-45F, 3e38F})
      for (const int count : {1, 7, 127, 32767}) {
        const Levels levels{scale, count};
        std::vector<std::int16_t> wanted(x.size()), got(x.size());
        reference::round_levels(x, levels, key, wanted);
        round_levels(input.span(), levels, key, got);
        ASSERT_EQ(got, wanted) << scale << " " << count;
      }
  });
}

TEST(Levels, PacksAndLeavesTheRest) {
  const RngKey key{.seed = 6};
  test::with_all_values([&](const std::vector<float>& x) {
    for (int bits = 2; bits <= 16; ++bits) {
      const Levels levels{2.0F, bits == 3 ? 2 : levels_of_bits(bits)};
      std::vector<std::int16_t> codes(x.size());
      reference::round_levels(x, levels, key, codes);
      auto packed = room(x.size(), bits), again = packed;
      encode_levels(x, levels, key, bits, packed);
      std::vector<float> wanted(x.size()), rest = x;
      for (std::size_t i = 0; i < x.size(); ++i)
        wanted[i] = static_cast<float>(codes[i]) * levels.unit();
      Unaligned<float> left(x), out(x.size());
      encode_levels_residual(left.span(), levels, key, bits, again);
      ASSERT_EQ(again, packed);
      decode_levels(packed, bits, levels, out.span(), Write::set);
      expect_same(out.span(), wanted);
      for (std::size_t i = 0; i < x.size(); ++i) rest[i] -= wanted[i];
      expect_same(left.span(), rest);
      for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = x[i] + wanted[i];
      Unaligned<float> sum(x);
      decode_levels(packed, bits, levels, sum.span(), Write::add);
      expect_same(sum.span(), wanted);
    }
  });
}

TEST(KnownFailures, KF29_BitsOfCodes) {
  EXPECT_EQ(packed_bytes(1025, 4), 513);
  EXPECT_EQ(packed_bytes(10'020'874, 4), 5'010'437);
  EXPECT_EQ(levels_of_bits(4), 7);
  EXPECT_EQ(bits_of_levels(7), 4);
  EXPECT_EQ(bits_of_levels(1), 2);
  EXPECT_EQ(bits_of_levels(3 * 63), 9);  // three ranks with 63 levels overflow eight bits
}

TEST(Levels, MeanAndVarianceAreThoseOfTheFormula) {
  // With scale 1 and s = 3: p (1 - p) / 9, p the fractional part of 3 |x|.
  const std::vector<float> x{0.3F, -0.05F, 0.8F, -1.0F};
  const double variance[] = {0.01, 0.0141666667, 0.0266666667, 0};
  constexpr int kDraws = 100'000;
  std::vector<float> wide(4 * kDraws);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = x[i % 4];
  std::vector<std::int8_t> codes(wide.size());
  round_levels(wide, {1.0F, 3}, {.seed = 11}, codes);
  double sum[4] = {}, square[4] = {};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double value = codes[i] / 3.0;
    sum[i % 4] += value;
    square[i % 4] += (value - x[i % 4]) * (value - x[i % 4]);
  }
  for (int j = 0; j < 4; ++j) {
    EXPECT_NEAR(sum[j] / kDraws, x[static_cast<std::size_t>(j)],
                5 * std::sqrt(variance[j] / kDraws) + 1e-6);
    EXPECT_NEAR(square[j] / kDraws, variance[j], 3e-4);
    EXPECT_LE(variance[j], 1.0 / 36);
  }
}

TEST(Levels, OtherKeysOtherCodes) {
  const std::vector<float> x(4096, 0.5F);
  std::vector<std::int8_t> a(x.size()), b(x.size());
  round_levels(x, {1.0F, 1}, {.seed = 1, .step = 1}, a);
  round_levels(x, {1.0F, 1}, {.seed = 1, .step = 2}, b);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < x.size(); ++i) equal += a[i] == b[i];
  EXPECT_NEAR(static_cast<double>(equal), 2048, 200);
}

TEST(Levels, MaximumAndNorm) {
  test::with_all_values([](const std::vector<float>& x) {
    Unaligned<float> input(x);
    expect_same(std::vector<float>{max_abs(input.span())},
                std::vector<float>{reference::max_abs(x)});
    std::vector<float> sum = test::values(x.size(), Kind::normal, 8);
    Unaligned<float> memory(sum);
    const float wanted = reference::accumulate_max_abs(sum, x);
    const float got = accumulate_max_abs(memory.span(), x);
    expect_same(std::vector<float>{got}, std::vector<float>{wanted});
    expect_same(memory.span(), sum);
    const double norm = norm2(input.span()), plain = reference::norm2(x);
    if (!std::isnan(norm) || !std::isnan(plain)) {
      ASSERT_EQ(norm, plain);
    }
  });
}

TEST(Levels, SumsOfCodesDecode) {
  const std::vector<std::int32_t> codes{-300, 0, 7};
  std::vector<float> out{1, 1, 1};
  decode_codes(std::span<const std::int32_t>(codes), 0.5F, out, Write::add);
  EXPECT_EQ(out, (std::vector<float>{-149, 1, 4.5}));
}

TEST(Levels, HostileFieldsAreRefused) {
  std::vector<float> out(100);
  test::with_each_simd([&] {
    auto packed = room(out.size(), 4);
    std::fill(packed.begin(), packed.end(), std::uint8_t{0x77});
    EXPECT_NO_THROW(decode_levels(packed, 4, {1.0F, 7}, out, Write::set));
    EXPECT_THROW(decode_levels(std::span(packed).first(49), 4, {1.0F, 7}, out, Write::set),
                 DataError);
    for (const std::size_t at : {0u, 20u, 49u}) {
      auto wrong = packed;
      wrong[at] = 0x7f;  // 15, where 14 is the last level
      EXPECT_THROW(decode_levels(wrong, 4, {1.0F, 7}, out, Write::set), DataError) << at;
    }
    std::vector<float> odd(1);
    EXPECT_THROW(decode_levels(std::vector<std::uint8_t>{0x17}, 4, {1.0F, 7}, odd, Write::set),
                 DataError);
  });
}

RC_GTEST_PROP(Fields, ReadBackAsWritten, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  const int bits = 1 + static_cast<int>(random() % 16);
  std::vector<std::uint16_t> fields(random() % 300);
  for (auto& field : fields) field = static_cast<std::uint16_t>(random() & ((1U << bits) - 1));
  auto packed = room(fields.size(), bits);
  pack_fields(fields, bits, packed);
  std::vector<std::uint16_t> back(fields.size());
  unpack_fields(packed, bits, back);
  RC_ASSERT(back == fields);
}

}  // namespace
}  // namespace thinwire::kernels
