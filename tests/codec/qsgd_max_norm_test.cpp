// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {
namespace {

using test::of_ranks;
using test::one_tensor;

}  // namespace

TEST(QsgdMaxNorm, FieldsAreAsWideAsTheSumNeeds) {
  // s = 2^q - 1: ceil(log2(2 n s + 1)) bits; q = 6 of 3 ranks has 9, 7 a word.
  EXPECT_EQ(one_tensor("qsgd_max_norm{bits=6,ranks=3}", 1000)->max_bytes(), 8 * 143);
  EXPECT_EQ(one_tensor("qsgd_max_norm{bits=6,ranks=2}", 1000)->max_bytes(), 1000);
  EXPECT_EQ(one_tensor("qsgd_max_norm{bits=1,ranks=1}", 1000)->max_bytes(), 8 * 32);
  EXPECT_EQ(one_tensor("qsgd_max_norm", 1)->traits().proposals, 8);
}

TEST(QsgdMaxNorm, ThreeRanksOfSixBitsDoNotOverflow) {
  const auto codec = one_tensor("qsgd_max_norm{bits=6,ranks=3}", 4);
  const at::Tensor x = at::tensor({1.0f, -1.0f, 0.0f, 1.0f});
  EXPECT_TRUE(at::allclose(of_ranks(*codec, {x, x, x}), 3 * x));
}

TEST(QsgdMaxNorm, MeanAndVarianceAreThoseOfTheFormula) {
  // M = 1, s = 3: p (1 - p) / 9, p the fractional part of 3 |x|; at most 1/36.
  const at::Tensor x = at::tensor({0.3f, -0.05f, 0.8f, -1.0f});
  const double variance[] = {0.01000, 0.01417, 0.02667, 0};
  constexpr int kDraws = 20'000;
  const auto codec = one_tensor("qsgd_max_norm{bits=2}", 4 * kDraws);
  at::Tensor out;
  codec->decode(codec->encode(x.repeat({kDraws}), {.seed = 9}), out, Write::set);
  const at::Tensor drawn = out.view({kDraws, 4}).to(at::kDouble);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor lost = drawn.select(1, i) - x[i].item<double>();
    EXPECT_NEAR(lost.mean().item<double>(), 0, 4 * std::sqrt(variance[i] / kDraws) + 1e-6);
    EXPECT_NEAR(lost.square().mean().item<double>(), variance[i], 0.03 * variance[i] + 1e-10);
    EXPECT_LE(variance[i], 1.0 / 36);
  }
}

TEST(QsgdMaxNorm, TheSumOfCodesIsTheSumOfDecodes) {
  const auto codec = one_tensor("qsgd_max_norm{bits=4}", 500);
  std::vector<at::Tensor> xs;
  for (int rank = 0; rank < 5; ++rank) xs.push_back(at::randn({500}));
  const Slot slot = test::agree(*codec, xs, {.seed = 2});
  at::Tensor words, decoded = at::zeros({500}, at::kDouble);
  const double unit = slot.agreed[0][0].item<float>() / 15;
  for (int rank = 0; rank < 5; ++rank) {
    Slot own = slot;
    own.rank = rank;
    const at::Tensor one = codec->encode(xs[static_cast<std::size_t>(rank)], own).parts[0].clone();
    at::Tensor value;
    codec->decode({.parts = {one}}, value, Write::set);
    decoded += (value.to(at::kDouble) / unit).round();  // codes, exactly
    words = rank == 0 ? one : words + one;
  }
  at::Tensor sum;
  codec->decode({.parts = {words}}, sum, Write::set);
  EXPECT_TRUE(at::equal((sum.to(at::kDouble) / unit).round(), decoded));
}

TEST(QsgdMaxNorm, OneRankWithManyLevelsKeepsAlmostAll) {
  const auto codec = one_tensor("qsgd_max_norm{bits=13,ranks=1}", 1000);
  const at::Tensor x = at::randn({1000});
  EXPECT_LE((of_ranks(*codec, {x}) - x).abs().max().item<double>(),
            1.001 * x.abs().max().item<double>() / 8191);
}

TEST(QsgdMaxNorm, RefusesMoreRanksAndWrongOptions) {
  const auto codec = one_tensor("qsgd_max_norm{ranks=2}", 8);
  const at::Tensor x = at::ones({8});
  TW_EXPECT_THROW(of_ranks(*codec, {x, x, x}), ConfigError, "write qsgd_max_norm{ranks=3}");
  TW_EXPECT_THROW(one_tensor("qsgd_max_norm{bits=14}", 1), ConfigError, "[1, 13], got 14");
}

}  // namespace thinwire
