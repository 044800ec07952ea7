// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::of_ranks;
using test::one_tensor;

TEST(MultiScale, AgreesOnAScaleAndABitAValue) {
  const auto codec = one_tensor("multi_scale{bits=2,fine=6,ranks=2}", 1000);
  EXPECT_EQ(codec->traits().proposals, 8 + 125);
  EXPECT_EQ(codec->max_bytes(), 8 * 63) << "3 levels of 2 ranks have 4 bits";
}

TEST(MultiScale, SmallValuesTakeTheFineGrid) {
  // s = 3, t = 63, M = 1: values up to 3/63 are fine, with units of 1/63 instead of 1/3.
  const auto codec = one_tensor("multi_scale{bits=2,fine=6}", 10'000);
  at::Tensor x = at::full({10'000}, 0.04f);
  x[0] = 1;
  at::Tensor out;
  codec->decode(codec->encode(x, {.seed = 1}), out, Write::set);
  const at::Tensor drawn = out.narrow(0, 1, 9'999).to(at::kDouble);
  EXPECT_EQ(out[0].item<float>(), 1);
  EXPECT_LE((drawn - 0.04).abs().max().item<double>(), 1.0 / 63);
  // p = 0.52: variance p (1 - p) / 63^2; on the coarse grid it would be 0.12 0.88 / 9.
  EXPECT_NEAR(drawn.mean().item<double>(), 0.04, 4 * std::sqrt(0.2496 / 3969 / 9'999));
  EXPECT_NEAR((drawn - 0.04).square().mean().item<double>(), 0.2496 / 3969, 3e-6);
}

TEST(MultiScale, TheGridIsChosenFromTheValueNotItsCode) {
  // At 2.9/63 and 3.1/63 there is no bias on either side of the edge.
  for (const double at : {2.9 / 63, 3.1 / 63}) {
    const auto codec = one_tensor("multi_scale{bits=2,fine=6}", 40'001);
    at::Tensor x = at::full({40'001}, at).to(at::kFloat), out;
    x[0] = 1;
    codec->decode(codec->encode(x, {.seed = 4}), out, Write::set);
    const double deviation =
        at < 3.0 / 63 ? std::sqrt(0.09) / 63 : std::sqrt(at * 3 * (1 - at * 3)) / 3;
    EXPECT_NEAR(out.narrow(0, 1, 40'000).to(at::kDouble).mean().item<double>(), at,
                4 * deviation / 200);
  }
}

TEST(MultiScale, OneRankThatNeedsTheCoarseGridDecides) {
  const auto codec = one_tensor("multi_scale{bits=2,fine=6}", 3);
  const at::Tensor a = at::tensor({1.0f, 1.0f / 63, 1.0f / 63}),
                   b = at::tensor({0.0f, 1.0f, 2.0f / 63});
  const at::Tensor sum = of_ranks(*codec, {a, b});
  EXPECT_FLOAT_EQ(sum[0].item<float>(), 1);
  EXPECT_FLOAT_EQ(sum[2].item<float>(), 3.0f / 63) << "fine on both, so exact";
  const double third = sum[1].item<double>() * 3;
  EXPECT_NEAR(third, std::round(third), 1e-5) << "a multiple of the coarse unit";
}

TEST(MultiScale, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("multi_scale{bits=6,fine=6}", 1), ConfigError, "[7, 24]");
}

}  // namespace thinwire
