// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::of_ranks;
using test::one_tensor;

TEST(GRandK, SendsEachValueOnceBeforeAnyAgain) {
  const auto codec = one_tensor("grandk{count=64}", 1000);
  const at::Tensor ones = at::ones({1000});
  at::Tensor first;
  for (int round = 0; round < 3; ++round) {
    at::Tensor times = at::zeros({1000});
    for (int step = 0; step < 16; ++step)  // ceil(1000 / 64)
      codec->decode(codec->encode(ones, {.step = 16 * round + step, .seed = 3}), times, Write::add);
    EXPECT_TRUE(at::equal(times, ones)) << "round " << round;
    at::Tensor sent;
    codec->decode(codec->encode(ones, {.step = 16 * round, .seed = 3}), sent, Write::set);
    if (round == 0) first = sent;
  }
  at::Tensor later;
  codec->decode(codec->encode(ones, {.step = 16, .seed = 3}), later, Write::set);
  EXPECT_FALSE(at::equal(later, first)) << "the permutation is drawn anew";
}

TEST(GRandK, RanksChooseTheSameAndAdd) {
  const auto codec = one_tensor("grandk{count=100,bits=8}", 1031);
  const at::Tensor a = at::full({1031}, 2.0f), b = at::full({1031}, -2.0f),
                   c = at::full({1031}, 2.0f);
  const at::Tensor sum = of_ranks(*codec, {a, b, c});
  EXPECT_EQ(sum.ne(0).sum().item<std::int64_t>(), 100);
  EXPECT_NEAR(sum.max().item<double>(), 2, 1e-6);
  EXPECT_EQ(codec->max_bytes(), 8 * 25) << "255 levels of 64 ranks have 15 bits, 4 a word";
}

TEST(GRandK, UnbiasedIsTimesTheShareThatTravels) {
  const auto codec = one_tensor("grandk{count=100,unbiased=yes}", 1000);
  at::Tensor sum = at::zeros({1000});
  for (int step = 0; step < 10; ++step)
    codec->decode(codec->encode(at::ones({1000}), {.step = step}), sum, Write::add);
  EXPECT_TRUE(at::allclose(sum, at::full({1000}, 10.0f))) << "ten steps of a mean of 1";
}

// The published program leaves a rank's own gradient where nothing is sent.
TEST(GRandK, WhatIsNotSentIsZeroOrStaysInTheMemory) {
  const auto codec = one_tensor("grandk{count=10,bits=13}", 100);
  const at::Tensor x = at::randn({100});
  const Payload payload = codec->encode(x, {.seed = 1});
  at::Tensor out, left = x.clone();
  codec->decode(payload, out, Write::set);
  EXPECT_EQ(out.eq(0).sum().item<std::int64_t>(), 90);
  codec->residual(x, payload, left);
  EXPECT_TRUE(at::equal(left.masked_select(out.eq(0)), x.masked_select(out.eq(0))));
}

TEST(GRandK, ReadsItsOptions) {
  EXPECT_EQ(one_tensor("grandk{ranks=8}", 1'000'000)->max_bytes(), 10'000)
      << "10,000 values; 15 levels of 8 ranks have 8 bits";
  TW_EXPECT_THROW(one_tensor("grandk{ratio=0.1,count=3}", 10), ConfigError, "twice");
  TW_EXPECT_THROW(one_tensor("grandk{bits=0}", 10), ConfigError, "[1, 13], got 0");
}

}  // namespace thinwire
