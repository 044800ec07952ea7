// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::one_tensor;

TEST(BlockFloat, BitsAValueAndAByteABlock) {
  EXPECT_EQ(one_tensor("block_float{bits=8,block=32}", 1024)->max_bytes(), 1024 + 32);
  EXPECT_EQ(one_tensor("block_float{bits=3,block=8}", 20)->max_bytes(), 8 + 3);
}

TEST(BlockFloat, StaysWithinHalfAUnitOfEachBlock) {
  for (const int bits : {2, 5, 8, 16}) {
    const auto codec = one_tensor("block_float{bits=" + std::to_string(bits) + "}", 1000);
    const at::Tensor x = at::randn({1000}) * at::exp(at::arange(1000) / 50 - 10);
    at::Tensor out;
    codec->decode(codec->encode(x, {}), out, Write::set);
    for (std::int64_t begin = 0; begin < 1000; begin += 32) {
      const std::int64_t count = std::min<std::int64_t>(32, 1000 - begin);
      const double largest = x.narrow(0, begin, count).abs().max().item<double>();
      // A largest that would round up to 2^(bits - 1) units takes units of twice the size, so it is
      // at least (2^(bits - 1) - 1/2) / 2 units.
      const double lost = (out - x).narrow(0, begin, count).abs().max().item<double>();
      const double unit = largest / (std::exp2(bits - 2) - 0.25);
      EXPECT_LE(lost, 0.5 * unit * (1 + 1e-6)) << bits;
    }
  }
}

TEST(BlockFloat, ABitMoreHalvesTheError) {
  double last = 0;
  const at::Tensor x = at::randn({10'000});
  for (int bits = 4; bits <= 14; ++bits) {
    const auto codec = one_tensor("block_float{bits=" + std::to_string(bits) + "}", 10'000);
    at::Tensor out;
    codec->decode(codec->encode(x, {}), out, Write::set);
    const double error = (out - x).norm().item<double>() / x.norm().item<double>();
    if (bits > 4) {
      EXPECT_NEAR(error / last, 0.5, 0.05) << bits;
    }
    last = error;
  }
}

TEST(BlockFloat, KeepsIntegersExactly) {
  const auto codec = one_tensor("block_float{bits=8,block=8}", 8);
  const at::Tensor x = at::tensor({127.0f, -127.0f, 1.0f, 0.0f, -64.0f, 2.0f, 3.0f, 100.0f});
  for (const double scale : {1.0, 0x1p-100, 0x1p100}) {
    at::Tensor out;
    codec->decode(codec->encode(x * scale, {}), out, Write::set);
    EXPECT_TRUE(at::equal(out, x * scale)) << scale;
  }
}

TEST(BlockFloat, ValuesThatAreNotFiniteAreRefusedNotLost) {
  const auto codec = one_tensor("block_float", 40);
  at::Tensor x = at::ones({40}), out;
  x[35] = std::nanf("");
  const Payload payload = codec->encode(x, {});
  TW_EXPECT_THROW(codec->decode(payload, out, Write::set), DataError, "not finite");
}

TEST(BlockFloat, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("block_float{bits=17}", 1), ConfigError, "[2, 16], got 17");
  TW_EXPECT_THROW(one_tensor("block_float{block=4}", 1), ConfigError, "multiple of 8, got 4");
}

}  // namespace thinwire
