// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> natural(std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("natural").make(parse_spec("natural"), descs);
}

}  // namespace

TEST(Natural, NineBitsAValue) { EXPECT_EQ(natural(1025)->max_bytes(), 1025 + 129); }

TEST(Natural, KeepsPowersOfTwoAndHasTheirVariance) {
  const auto codec = natural(10'004);
  at::Tensor x = at::full({10'004}, 1.5), out;
  x.narrow(0, 0, 4).copy_(at::tensor({0.0f, -4.0f, 0.25f, -1.0f}));
  codec->decode(codec->encode(x, {.seed = 1}), out, Write::set);
  EXPECT_TRUE(at::equal(out.narrow(0, 0, 4), x.narrow(0, 0, 4)));
  const at::Tensor drawn = out.narrow(0, 4, 10'000);
  EXPECT_TRUE((drawn.eq(1) | drawn.eq(2)).all().item<bool>());
  EXPECT_NEAR(drawn.mean().item<double>(), 1.5, 0.02) << "four deviations";
}

TEST(Natural, RanksDrawTheirOwnNumbers) {
  const auto codec = natural(1000);
  const at::Tensor x = at::randn({1000});
  at::Tensor a, b;
  codec->decode(codec->encode(x, {.seed = 1, .rank = 0}), a, Write::set);
  codec->decode(codec->encode(x, {.seed = 1, .rank = 1}), b, Write::set);
  EXPECT_FALSE(at::equal(a, b));
}

TEST(Natural, HasNoOptions) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {1}}};
  TW_EXPECT_THROW(codecs().find("natural").make(parse_spec("natural{bits=4}"), descs), ConfigError,
                  "bits");
}

}  // namespace thinwire
