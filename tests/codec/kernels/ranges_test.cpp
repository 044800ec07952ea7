// SPDX-License-Identifier: Apache-2.0
// Levels in a range, and levels that keep a bound.
#include "thinwire/codec/kernels/ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/codec/kernels/values.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Packed = std::vector<std::uint8_t>;

std::vector<float> bounded(const std::vector<float>& x, float bound) {
  Packed bytes;
  encode_bounded(x, bound, bytes);
  EXPECT_LE(static_cast<std::int64_t>(bytes.size()),
            bounded_bytes(static_cast<std::int64_t>(x.size())));
  std::vector<float> out(x.size());
  decode_bounded(bytes, 1, out, Write::set);
  return out;
}

}  // namespace

TEST(Ranges, TheRangeIsThatOfAllValues) {
  const std::vector<float> x{3, -1, 7, 0};
  EXPECT_EQ(range_of(x).least, -1);
  EXPECT_EQ(range_of(x).largest, 7);
  EXPECT_EQ(range_of({}).largest, 0);
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<float> with = x;
    with[at] = std::nanf("");
    EXPECT_TRUE(std::isnan(range_of(with).least) && std::isnan(range_of(with).largest));
  }
}

TEST(Ranges, FieldsDecodeBetweenTheEnds) {
  for (const int bits : {1, 4, 9, 15}) {
    const std::size_t count = 2049;
    std::vector<std::uint16_t> fields(count);
    for (std::size_t i = 0; i < count; ++i)
      fields[i] = static_cast<std::uint16_t>(i * 7 % (1U << bits));
    Packed packed(static_cast<std::size_t>(packed_bytes(2049, bits)));
    pack_fields(fields, bits, packed);
    std::vector<float> out(count), sum(count, 1);
    decode_range(packed, bits, {-2, 6}, 1, out, Write::set);
    decode_range(packed, bits, {-2, 6}, -1, sum, Write::add);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(out[i], -2 + 8.0 * fields[i] / ((1 << bits) - 1), 1e-5);
      ASSERT_EQ(sum[i], 1 - out[i]);
    }
    EXPECT_THROW(
        decode_range(std::span(packed).first(packed.size() - 1), bits, {0, 1}, 1, out, Write::set),
        DataError);
    EXPECT_THROW(decode_range(packed, bits, {1, 0}, 1, out, Write::set), DataError);
    EXPECT_THROW(decode_range(packed, bits, {0, std::nanf("")}, 1, out, Write::set), DataError);
  }
}

RC_GTEST_PROP(Bounded, EveryValueIsWithinTheBound, ()) {
  const auto count = static_cast<std::size_t>(*rc::gen::inRange(0, 300));
  const auto exponent = *rc::gen::inRange(-30, 10);
  const float bound =
      std::ldexp(1.0F + static_cast<float>(*rc::gen::inRange(0, 100)) / 100, exponent);
  std::vector<float> x =
      test::values(count, test::Kind::normal, static_cast<unsigned>(exponent + 40));
  for (std::size_t i = 0; i < count; i += 3) x[i] = bound * static_cast<float>(i);  // ties, nearly
  const auto out = bounded(x, bound);
  for (std::size_t i = 0; i < count; ++i) {
    RC_ASSERT(std::fabs(double{out[i]} - double{x[i]}) <= double{bound});
    if (x[i] == 0) RC_ASSERT(out[i] == 0);
  }
}

TEST(Bounded, OfEveryKindOfValueNothingWorseComesBack) {
  for (const test::Kind kind : {test::Kind::any_bits, test::Kind::special})
    for (const std::size_t count : test::kLengths) {
      const auto x = test::values(count, kind, 1);
      const auto out = bounded(x, 1e-3F);
      for (std::size_t i = 0; i < count; ++i) {
        if (std::isfinite(x[i])) {
          ASSERT_LE(std::fabs(out[i] - x[i]), 1e-3F);
        } else {
          ASSERT_TRUE(out[i] == x[i] || (std::isnan(out[i]) && std::isnan(x[i]))) << "as it is";
        }
      }
    }
  const std::vector<float> x{1.5F, -2, 0};
  EXPECT_EQ(bounded(x, 0), x);
}

TEST(Bounded, OtherBytesAreRefused) {
  std::vector<float> x(130, 1), out(130);
  Packed good;
  encode_bounded(x, 0.01F, good);
  EXPECT_NO_THROW(decode_bounded(good, 1, out, Write::set));
  const auto refused = [&](const Packed& bytes) {
    EXPECT_THROW(decode_bounded(bytes, 1, out, Write::set), DataError);
  };
  refused({});
  refused(Packed(good.begin(), good.end() - 1));
  Packed more = good;
  more.push_back(0);
  refused(more);
  for (const std::uint8_t width : {1, 17, 31, 33, 255}) {
    Packed wrong = good;
    wrong[4] = width;
    refused(wrong);
  }
  Packed step = good;
  step[3] = 0xff;
  refused(step);
}

}  // namespace thinwire::kernels
