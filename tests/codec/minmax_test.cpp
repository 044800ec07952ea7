// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::one_tensor;

TEST(MinMax, BitsAValueAndARangeABlock) {
  EXPECT_EQ(one_tensor("minmax{bits=1,block=1032}", 1025)->max_bytes(), 129 + 8);
  EXPECT_EQ(one_tensor("minmax{bits=4,block=128}", 1031)->max_bytes(), 516 + 9 * 8);
}

TEST(MinMax, StaysWithinHalfAStepAlsoInTheLastBlock) {
  for (const int bits : {1, 4, 8, 15}) {
    const auto codec = one_tensor("minmax{block=128,bits=" + std::to_string(bits) + "}", 1031);
    const at::Tensor x = at::randn({1031}) + 5;
    at::Tensor out;
    codec->decode(codec->encode(x, {}), out, Write::set);
    for (std::int64_t begin = 0; begin < 1031; begin += 128) {
      const std::int64_t count = std::min<std::int64_t>(128, 1031 - begin);
      const at::Tensor part = x.narrow(0, begin, count), got = out.narrow(0, begin, count);
      const double range = (part.max() - part.min()).item<double>();
      EXPECT_LE((got - part).abs().max().item<double>(), 0.5 * range / ((1 << bits) - 1) + 2e-6)
          << bits;
      EXPECT_FLOAT_EQ(got.min().item<float>(), part.min().item<float>());
      EXPECT_NEAR(got.max().item<float>(), part.max().item<float>(), 2e-6);
    }
  }
}

TEST(MinMax, ByChanceOneBitHasTheProbabilityOfTheValue) {
  // (0, 0.25, 1) with one bit: the second becomes 1 with probability 0.25.
  constexpr int kDraws = 30'000;
  const auto codec = one_tensor("minmax{bits=1,round=chance,block=90000}", 3 * kDraws);
  at::Tensor out;
  codec->decode(codec->encode(at::tensor({0.0f, 0.25f, 1.0f}).repeat({kDraws}), {.seed = 2}), out,
                Write::set);
  const at::Tensor drawn = out.view({kDraws, 3});
  EXPECT_TRUE(drawn.select(1, 0).eq(0).all().item<bool>());
  EXPECT_TRUE(drawn.select(1, 2).eq(1).all().item<bool>());
  EXPECT_NEAR(drawn.select(1, 1).mean().item<double>(), 0.25, 4 * std::sqrt(0.1875 / kDraws));
  EXPECT_LE(drawn.select(1, 1).var().item<double>(), 0.25) << "the square of the range over 4";
}

TEST(MinMax, KeepsWhatIsOneValue) {
  const auto codec = one_tensor("minmax", 100);
  at::Tensor out;
  codec->decode(codec->encode(at::full({100}, -3.25f), {}), out, Write::set);
  EXPECT_TRUE(at::equal(out, at::full({100}, -3.25f)));
}

TEST(MinMax, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("minmax{bits=16}", 1), ConfigError, "[1, 15], got 16");
  TW_EXPECT_THROW(one_tensor("minmax{round=down}", 1), ConfigError, "nearest or chance");
}

}  // namespace thinwire
