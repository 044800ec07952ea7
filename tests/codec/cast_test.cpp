// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> cast(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("cast").make(parse_spec(spec), descs);
}

}  // namespace

TEST(Cast, RoundsToNearest) {
  const at::Tensor x = at::tensor({1.0f, 1.0f / 3, -65504.0f, 5.9604645e-8f, 0.0f});
  for (const auto& [spec, type] :
       {std::pair{"cast{f16}", at::kHalf}, std::pair{"cast{bf16}", at::kBFloat16}}) {
    const auto codec = cast(spec, 5);
    const Payload payload = codec->encode(x, {});
    EXPECT_EQ(payload.bytes(), 10);
    EXPECT_EQ(codec->max_bytes(), 10);
    at::Tensor out;
    codec->decode(payload, out, Write::set);
    EXPECT_TRUE(at::equal(out, x.to(type).to(at::kFloat)));
    codec->decode(payload, out, Write::add);
    EXPECT_TRUE(at::equal(out, 2 * x.to(type).to(at::kFloat)));
  }
}

TEST(Cast, WantsAType) {
  TW_EXPECT_THROW(cast("cast", 1), ConfigError, "write cast{f16} or cast{bf16}");
  TW_EXPECT_THROW(cast("cast{f32}", 1), ConfigError, "cast{bf16}");
}

}  // namespace thinwire
