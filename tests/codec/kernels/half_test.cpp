// SPDX-License-Identifier: Apache-2.0
// Half formats in vector code against the plain loops; f16 over all its 65,536 bit patterns.
#include "thinwire/codec/kernels/half.h"

#include <gtest/gtest.h>

#include "tests/codec/kernels/values.h"
#include "thinwire/core/half.h"

namespace thinwire::kernels {
namespace {

using test::expect_same;
using test::Unaligned;

TEST(Half, VectorCodeEqualsThePlainLoops) {
  test::with_all_values([](const std::vector<float>& x) {
    for (const Half format : {Half::f16, Half::bf16}) {
      std::vector<std::uint16_t> wanted(x.size());
      Unaligned<std::uint16_t> got(x.size());
      Unaligned<float> input(x);
      reference::encode_half(format, x, wanted);
      encode_half(format, input.span(), got.span());
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got.span().begin()));

      std::vector<float> wanted_rest = x;
      reference::encode_half_residual(format, wanted_rest, wanted);
      encode_half_residual(format, input.span(), got.span());
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got.span().begin()));
      expect_same(input.span(), wanted_rest);

      for (const Write mode : {Write::set, Write::add}) {
        std::vector<float> wanted_out = x;
        Unaligned<float> out(x);
        reference::decode_half(format, wanted, wanted_out, mode);
        decode_half(format, got.span(), out.span(), mode);
        expect_same(out.span(), wanted_out);
      }
    }
  });
}

// Large enough to be written past the caches.
TEST(Half, LargeOnesEqualThePlainLoops) {
  const auto x = test::values((1 << 21) + 77, test::Kind::normal, 3);
  std::vector<std::uint16_t> wanted(x.size());
  reference::encode_half(Half::f16, x, wanted);
  test::with_each_simd([&] {
    for (const std::size_t shift : {0u, 1u, 7u, 16u}) {
      std::vector<std::uint16_t> got(x.size() + shift);
      encode_half(Half::f16, x, std::span(got).subspan(shift));
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin() + static_cast<long>(shift)));
    }
  });
}

TEST(Half, EveryF16DecodesToItsBits) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wanted(all.size()), got(all.size());
  reference::decode_half(Half::f16, all, wanted, Write::set);
  test::with_each_simd([&] {
    decode_half(Half::f16, all, got, Write::set);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i])) << i;
  });
}

TEST(Half, TiesGoToEvenAndTheLargestBecomesInfinite) {
  const std::vector<float> x{1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 65519, 65520, -65520, 0x1p-25F};
  std::vector<std::uint16_t> out(x.size());
  test::with_each_simd([&] {
    encode_half(Half::f16, x, out);
    EXPECT_EQ(out, (std::vector<std::uint16_t>{0x3c00, 0x3c02, 0x7bff, 0x7c00, 0xfc00, 0}));
  });
}

}  // namespace
}  // namespace thinwire::kernels
