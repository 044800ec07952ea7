// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"

namespace thinwire {

TEST(None, SendsTheTensorItself) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {1000}}};
  const auto codec = codecs().find("none").make(parse_spec("none"), descs);
  Tensor x = at::arange(1000, at::kFloat);
  const Payload payload = codec->encode(x, {});
  ASSERT_EQ(payload.parts.size(), 1u);
  EXPECT_EQ(payload.parts[0].data_ptr(), x.data_ptr()) << "no copy";
  EXPECT_EQ(payload.bytes(), 4000);
  EXPECT_EQ(codec->max_bytes(), 4000);
  Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, x));
  codec->decode(payload, out, Write::add);
  EXPECT_TRUE(at::equal(out, x.add(x)));
  Tensor left = x.clone();
  codec->residual(x, payload, left);
  EXPECT_EQ(left.abs().max().item<float>(), 0);
}

TEST(None, TakesNoOptions) {
  TW_EXPECT_THROW(codecs().find("none").make(parse_spec("none{ratio=1}"), {}), ConfigError,
                  "ratio");
  TW_EXPECT_THROW(codecs().find("nnoe"), ConfigError, "did you mean 'none'");
}

TEST(TorchDtype, PairsBothWays) {
  for (int i = 0; i < 12; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
    EXPECT_EQ(static_cast<Bytes>(c10::elementSize(scalar_type_of(dtype))), dtype_bytes(dtype));
  }
  EXPECT_FALSE(dtype_of(c10::ScalarType::Float8_e4m3fn).has_value());
}

}  // namespace thinwire
