// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> terngrad(const std::string& spec, std::vector<std::int64_t> counts) {
  std::vector<TensorDesc> descs;
  for (const auto n : counts) descs.push_back({"w" + std::to_string(n), DType::f32, {n}});
  return codecs().find("terngrad").make(parse_spec(spec), descs);
}

}  // namespace

TEST(TernGrad, TwoBitsAValueAndAScaleATensor) {
  EXPECT_EQ(terngrad("terngrad", {1025, 0, 3})->max_bytes(), 4 + 257 + 4 + 1);
}

TEST(TernGrad, HasThreeValuesOfEachTensor) {
  const auto codec = terngrad("terngrad{clip=0}", {500, 3});
  at::Tensor x = at::randn({503});
  x.narrow(0, 500, 3).copy_(at::tensor({0.0f, -8.0f, 8.0f}));
  x[7] = 0;
  at::Tensor out;
  codec->decode(codec->encode(x, {.seed = 1}), out, Write::set);
  const at::Tensor first = out.narrow(0, 0, 500), scale = x.narrow(0, 0, 500).abs().max();
  EXPECT_TRUE((first.eq(0) | first.abs().eq(scale)).all().item<bool>());
  EXPECT_TRUE((first.eq(0) | first.sign().eq(x.narrow(0, 0, 500).sign())).all().item<bool>());
  EXPECT_TRUE(at::equal(out.narrow(0, 500, 3), x.narrow(0, 500, 3))) << "the extremes are kept";
  EXPECT_EQ(out[7].item<float>(), 0);
}

TEST(TernGrad, ClippingBoundsTheScale) {
  at::Tensor x = at::ones({1000});
  x[0] = 1000;  // the root mean square is sqrt(1000.999)
  at::Tensor out;
  const auto clipped = terngrad("terngrad", {1000});
  clipped->decode(clipped->encode(x, {.seed = 2}), out, Write::set);
  EXPECT_NEAR(out.max().item<double>(), 2.5 * std::sqrt(1000.999), 1e-3);
  EXPECT_FALSE(clipped->traits().unbiased);
  EXPECT_TRUE(terngrad("terngrad{clip=0}", {1})->traits().unbiased);
}

TEST(TernGrad, MeanAndVarianceAreThoseOfTheFormula) {
  // One of scale 1: E = x, variance |x| (1 - |x|).
  constexpr int kDraws = 40'000;
  const auto codec = terngrad("terngrad{clip=0}", {kDraws + 1});
  at::Tensor x = at::full({kDraws + 1}, -0.3), out;
  x[0] = 1;
  codec->decode(codec->encode(x, {.seed = 3}), out, Write::set);
  const at::Tensor drawn = out.narrow(0, 1, kDraws);
  EXPECT_NEAR(drawn.mean().item<double>(), -0.3, 4 * std::sqrt(0.21 / kDraws));
  EXPECT_NEAR((drawn + 0.3).square().mean().item<double>(), 0.21, 0.01);
}

TEST(TernGrad, ReadsItsOptions) {
  TW_EXPECT_THROW(terngrad("terngrad{clip=-1}", {1}), ConfigError, "at least 0, got -1");
}

}  // namespace thinwire
