// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/kernels/indices.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> topk(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("topk").make(parse_spec(spec), descs);
}

at::Tensor floats(std::vector<float> values) { return at::tensor(values); }

}  // namespace

TEST(TopK, KeepsTheLargestAndOfEqualOnesTheFirst) {
  const auto codec = topk("topk{count=3}", 8);
  at::Tensor x = floats({1, -2, 2, 0, -2, 5, 2, 1});
  const Payload payload = codec->encode(x, {});
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, floats({0, -2, 2, 0, 0, 5, 0, 0})));
  codec->residual(x, payload, x);
  EXPECT_TRUE(at::equal(x, floats({1, 0, 0, 0, -2, 0, 2, 1})));
}

TEST(TopK, AllZerosAndTiesSendExactlyK) {
  const auto codec = topk("topk{count=2}", 40);
  at::Tensor out;
  codec->decode(codec->encode(at::zeros({40}), {}), out, Write::set);
  EXPECT_TRUE(at::equal(out, at::zeros({40})));
  codec->decode(codec->encode(at::full({40}, -1.0f), {}), out, Write::set);
  EXPECT_EQ(out[0].item<float>(), -1);
  EXPECT_EQ(out[1].item<float>(), -1);
  EXPECT_EQ(out.sum().item<float>(), -2);
}

TEST(TopK, KF21_IsDenseWhereThatIsShorter) {
  EXPECT_EQ(topk("topk{ratio=0.97}", 1000)->max_bytes(), 4000) << "3,880 of values, 125 of bitmap";
  EXPECT_EQ(topk("topk{ratio=0.9}", 1000)->max_bytes(), 3600 + 125);
  const auto codec = topk("topk{ratio=0.97}", 1000);
  const at::Tensor x = at::arange(1000, at::kFloat);
  const Payload payload = codec->encode(x, {});
  EXPECT_EQ(payload.bytes(), 4000);
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, x));
}

TEST(TopK, OnePercentTakesFiveBytesAValue) {
  const std::int64_t n = 1'000'000, k = 10'000;
  EXPECT_LT(topk("topk{ratio=0.01}", n)->max_bytes(), k * 4 + k * 11 / 10);
}

TEST(TopK, RefusesOptions) {
  TW_EXPECT_THROW(topk("topk{ratio=1.5}", 4), ConfigError,
                  "topk: ratio must be in (0, 1], got 1.5");
  TW_EXPECT_THROW(topk("topk{ratio=0.1,count=2}", 4), ConfigError, "give one");
  TW_EXPECT_THROW(topk("topk{count=0}", 4), ConfigError, "count must be at least 1, got 0");
  TW_EXPECT_THROW(topk("topk{rato=0.1}", 4), ConfigError, "'ratio'");
}

TEST(TopK, PlansKnowTheBytesOfPositions) {
  for (const std::int64_t n : {1, 2, 7, 8, 9, 64, 65, 1000, 4099, 1 << 20})
    for (std::int64_t k = 1; k <= n; k = k * 3 + 1)
      EXPECT_EQ(position_bytes(n, k), kernels::index_bytes(n, k)) << k << " of " << n;
}

}  // namespace thinwire
