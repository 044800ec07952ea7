// SPDX-License-Identifier: Apache-2.0
// Words of codes add as codes, for as many ranks as promised, and no carry is lost.
#include "thinwire/codec/kernels/sums.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/codec/kernels/values.h"

namespace thinwire::kernels {
namespace {

using Codes = std::vector<std::int16_t>;
using Words = std::vector<std::int64_t>;

Words room_for(std::size_t codes, int bits) {
  return Words(static_cast<std::size_t>(sum_words(static_cast<std::int64_t>(codes), bits)), -1);
}

Words packed(const Codes& codes, int bits) {
  Words words = room_for(codes.size(), bits), plain = words;
  pack_sums(codes, bits, words);
  reference::pack_sums(codes, bits, plain);
  EXPECT_EQ(words, plain);
  return words;
}

void add(Words& to, const Words& words) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(to[i]) +
                                      static_cast<std::uint64_t>(words[i]));
}

}  // namespace

TEST(Sums, BitsAreThoseOfTheFormula) {
  EXPECT_EQ(sum_bits(1, 1), 2);
  EXPECT_EQ(sum_bits(63, 2), 8);
  EXPECT_EQ(sum_bits(63, 3), 9) << "three ranks with 63 levels overflow eight bits";
  EXPECT_EQ(sum_bits(63, 64), 13);
  for (const std::int64_t levels : {1, 3, 7, 63, 1023})
    for (const std::int64_t ranks : {1, 2, 3, 8, 64, 1000})
      EXPECT_EQ(
          sum_bits(levels, ranks),
          static_cast<int>(std::ceil(std::log2(static_cast<double>(2 * ranks * levels + 1)))));
}

TEST(Sums, ExtremesOfManyRanksDoNotOverflow) {
  for (const int levels : {1, 7, 63, 16383})
    for (const int ranks : {1, 2, 3, 64, 1000}) {
      const int bits = sum_bits(levels, ranks);
      Codes codes;
      for (int i = 0; i < 67; ++i)
        codes.push_back(static_cast<std::int16_t>(i % 3 == 0 ? levels : i % 3 == 1 ? -levels : 0));
      Words sum = packed(codes, bits);
      const Words one = sum;
      for (int rank = 1; rank < ranks; ++rank) add(sum, one);
      std::vector<std::int32_t> got(codes.size()), plain(codes.size());
      unpack_sums(sum, bits, got);
      reference::unpack_sums(sum, bits, plain);
      EXPECT_EQ(got, plain);
      for (std::size_t i = 0; i < codes.size(); ++i)
        ASSERT_EQ(got[i], ranks * codes[i]) << levels << " levels, " << ranks << " ranks";
    }
}

RC_GTEST_PROP(Sums, TheWordOfSumsIsTheSumOfWords, ()) {
  const int levels = *rc::gen::inRange(1, 16384), ranks = *rc::gen::inRange(1, 100);
  const int bits = sum_bits(levels, ranks);
  const auto count = static_cast<std::size_t>(*rc::gen::inRange(0, 200));
  Words sum = room_for(count, bits);
  std::fill(sum.begin(), sum.end(), 0);
  std::vector<std::int32_t> wanted(count), got(count);
  for (int rank = 0; rank < ranks; ++rank) {
    Codes codes;
    for (std::size_t i = 0; i < count; ++i)
      codes.push_back(static_cast<std::int16_t>(*rc::gen::inRange(-levels, levels + 1)));
    add(sum, packed(codes, bits));
    for (std::size_t i = 0; i < count; ++i) wanted[i] += codes[i];
  }
  unpack_sums(sum, bits, got);
  RC_ASSERT(got == wanted);
  std::vector<float> values(count, 1), more(count, 1);
  decode_sums(sum, bits, 0.5F, values, Write::set);
  decode_sums(sum, bits, 0.5F, more, Write::add);
  for (std::size_t i = 0; i < count; ++i) {
    RC_ASSERT(values[i] == 0.5F * static_cast<float>(wanted[i]));
    RC_ASSERT(more[i] == 1 + values[i]);
  }
}

TEST(Sums, NearestLevelsAreNearest) {
  for (const std::size_t count : test::kLengths)
    for (const float scale : {3.0F, 1e-39F, 1e30F}) {
      std::vector<float> x = test::values(count, test::Kind::normal, 3);
      for (float& each : x) each = std::clamp(each, -3.0F, 3.0F) / 3 * scale;
      const Levels levels{.scale = scale, .count = 127};
      Codes codes(count);
      round_nearest(x, levels, codes);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_LE(std::fabs(static_cast<float>(codes[i]) * double{levels.unit()} - double{x[i]}),
                  0.5001 * double{levels.unit()} + 1e-44);
    }
  Codes codes(4);
  const std::vector<float> x{1.5F, -2.5F, 9, std::nanf("")};
  round_nearest(x, {.scale = 7, .count = 7}, codes);
  EXPECT_EQ(codes, (Codes{2, -2, 7, 7})) << "ties to even; cut off";
  round_nearest(x, {.scale = 0, .count = 7}, codes);
  EXPECT_EQ(codes, (Codes{0, 0, 0, 7}));
}

}  // namespace thinwire::kernels
