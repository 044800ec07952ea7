// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::of_ranks;
using test::one_tensor;

TEST(CountSketch, HasATableOfTheRatio) {
  EXPECT_EQ(one_tensor("count_sketch{ratio=0.1,rows=3}", 10'000)->max_bytes(), 4 * 999);
  EXPECT_EQ(one_tensor("count_sketch", 1)->max_bytes(), 4 * 3);
}

TEST(CountSketch, TheSketchOfASumIsTheSumOfSketches) {
  const auto codec = one_tensor("count_sketch", 1000);
  const at::Tensor a = at::randn({1000}), b = at::randn({1000});
  EXPECT_TRUE(at::allclose(of_ranks(*codec, {a, b}), of_ranks(*codec, {a + b}), 1e-4, 1e-4));
}

TEST(CountSketch, OneValueAloneIsExact) {
  const auto codec = one_tensor("count_sketch{unbiased=yes}", 1000);
  at::Tensor x = at::zeros({1000});
  x[321] = -7;
  EXPECT_FLOAT_EQ(of_ranks(*codec, {x})[321].item<float>(), -7);
}

TEST(CountSketch, LosesTheShareOfTheFormula) {
  // a = r c / (r c + n - 1): what is lost of |x|^2 is 1 - a with damping, (n - 1) / (r c) without.
  const at::Tensor x = at::randn({500});
  const double squares = x.square().sum().item<double>();
  for (const bool unbiased : {false, true})
    for (const int rows : {1, 4}) {
      const auto codec = one_tensor(fmt::format("count_sketch{{ratio=0.4,rows={},unbiased={}}}",
                                                rows, unbiased ? "yes" : "no"),
                                    500);
      double lost = 0;
      at::Tensor mean = at::zeros({500}), out;
      constexpr int kSteps = 400;
      for (int step = 0; step < kSteps; ++step) {
        codec->decode(codec->encode(x, {.step = step, .seed = 5}), out, Write::set);
        lost += (out - x).square().sum().item<double>() / squares / kSteps;
        mean += out / kSteps;
      }
      const double cells = 200, share = cells / (cells + 499);
      EXPECT_NEAR(lost, unbiased ? 499 / cells : 1 - share, unbiased ? 0.12 : 0.02) << rows;
      const double kept = unbiased ? 1 : share;
      EXPECT_NEAR((mean * x).sum().item<double>() / squares, kept, 0.03) << rows;
    }
}

TEST(CountSketch, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("count_sketch{rows=5}", 1), ConfigError, "[1, 4], got 5");
  TW_EXPECT_THROW(one_tensor("count_sketch{ratio=2}", 1), ConfigError, "(0, 1], got 2");
}

}  // namespace thinwire
