// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> onebit(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("onebit").make(parse_spec(spec), descs);
}

}  // namespace

TEST(OneBit, KF29_OneBitAValue) {
  EXPECT_EQ(onebit("onebit{block=1032}", 1025)->max_bytes(), 129 + 8);
}

TEST(OneBit, SendsTheTwoMeansOfEachBlock) {
  const auto codec = onebit("onebit{block=8}", 11);
  const at::Tensor x =
      at::tensor({1.0f, 3.0f, -1.0f, -2.0f, 0.0f, 0.0f, -6.0f, 4.0f, -5.0f, -7.0f, -9.0f});
  at::Tensor out;
  codec->decode(codec->encode(x, {}), out, Write::set);
  EXPECT_TRUE(at::equal(
      out, at::tensor({1.6f, 1.6f, -3.0f, -3.0f, 1.6f, 1.6f, -3.0f, 1.6f, -7.0f, -7.0f, -7.0f})))
      << out;
}

// Of all pairs of values for the two kinds the means lose least, so what is left sums to zero over
// each kind.
TEST(OneBit, LeavesNothingOnAverage) {
  const auto codec = onebit("onebit{block=512}", 512);
  const at::Tensor x = at::randn({512});
  at::Tensor left = x.clone();
  codec->residual(x, codec->encode(x, {}), left);
  EXPECT_NEAR(left.masked_select(x.ge(0)).sum().item<double>(), 0, 1e-4);
  EXPECT_NEAR(left.masked_select(x.lt(0)).sum().item<double>(), 0, 1e-4);
  EXPECT_LT(left.square().sum().item<double>(), x.square().sum().item<double>());
}

TEST(OneBit, ReadsItsOptions) {
  TW_EXPECT_THROW(onebit("onebit{block=12}", 1), ConfigError, "multiple of 8, got 12");
}

}  // namespace thinwire
