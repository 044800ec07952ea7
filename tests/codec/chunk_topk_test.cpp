// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> chunk_topk(const std::string& options, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("chunk_topk").make(parse_spec("chunk_topk{" + options + "}"), descs);
}

at::Tensor decoded(Codec& codec, const at::Tensor& x) {
  at::Tensor out;
  codec.decode(codec.encode(x, {}), out, Write::set);
  return out.clone();
}

}  // namespace

// Sarfi et al. 2025: 64 of 4,096 at 2 bits and 12 bits of position are 32 / 0.21875 = 146 times
// less than dense; positions coded together leave more.
TEST(ChunkTopK, TakesFewerBitsThanPositionsOf12) {
  EXPECT_EQ(64 * (2 + 12) / 4096.0, 0.21875);
  const Bytes bytes = chunk_topk("", 4096 * 100)->max_bytes();
  EXPECT_LE(bytes, 100 * 84 + 4);
  EXPECT_GT(4.0 * 4096 * 100 / static_cast<double>(bytes), 190);
}

TEST(ChunkTopK, KeepsTheLargestOfEachChunk) {
  const auto codec = chunk_topk("chunk=4,count=2,bits=32", 10);
  const at::Tensor x = at::tensor({9.F, 8.F, 7.F, 6.F, 1.F, 0.F, -3.F, 2.F, 5.F, -4.F});
  EXPECT_TRUE(at::equal(decoded(*codec, x),
                        at::tensor({9.F, 8.F, 0.F, 0.F, 0.F, 0.F, -3.F, 2.F, 5.F, 0.F})))
      << "a last chunk of two keeps one";
}

TEST(ChunkTopK, TwoBitsAreFourLevels) {
  const auto codec = chunk_topk("chunk=6,count=6,bits=2", 6);
  const at::Tensor x = at::tensor({3.F, -3.F, 0.9F, -0.2F, 2.1F, -1.9F});
  const at::Tensor out = decoded(*codec, x);
  EXPECT_TRUE(at::allclose(out, at::tensor({3.F, -3.F, 1.F, -1.F, 3.F, -1.F}))) << out;
  at::Tensor left = x.clone();
  const Payload payload = codec->encode(x, {});
  EXPECT_EQ(payload.bytes(), 2 + 4 + 1) << "codes, a scale, a bitmap";
  codec->residual(left, payload, left);
  EXPECT_TRUE(at::allclose(left + out, x));
}

TEST(ChunkTopK, MoreBitsComeCloser) {
  const at::Tensor x = at::randn({4096});
  for (int bits = 2; bits <= 8; ++bits) {
    const auto codec = chunk_topk("chunk=64,count=64,bits=" + std::to_string(bits), 4096);
    const at::Tensor off = (decoded(*codec, x) - x).abs().view({64, 64});
    const at::Tensor most = std::get<0>(x.view({64, 64}).abs().max(1)) / ((1 << bits) - 1);
    EXPECT_TRUE((std::get<0>(off.max(1)) <= most * 1.0001).all().item<bool>()) << bits;
  }
}

TEST(ChunkTopK, AveragesOverAllOrOverThoseThatHaveSent) {
  for (const std::string average : {"all", "senders"}) {
    const auto codec = chunk_topk("chunk=3,count=1,bits=32,average=" + average, 3);
    const auto copy = [&](const at::Tensor& x) {
      return Payload{{codec->encode(x, {}).parts[0].clone()}};
    };
    const std::vector<Payload> two{copy(at::tensor({4.F, 1.F, 1.F})),
                                   copy(at::tensor({1.F, 1.F, 6.F}))};
    at::Tensor out;
    codec->combine(two, 2, out);
    EXPECT_TRUE(at::equal(
        out, average == "all" ? at::tensor({2.F, 0.F, 3.F}) : at::tensor({4.F, 0.F, 6.F})));
    codec->combine(two, 1, out);
    EXPECT_TRUE(at::equal(out, at::tensor({4.F, 0.F, 6.F}))) << "a sum is a sum";
  }
}

TEST(ChunkTopK, RefusesOptionsAndBytes) {
  TW_EXPECT_THROW(chunk_topk("bits=1", 4), ConfigError, "32, or in [2, 8], got 1");
  TW_EXPECT_THROW(chunk_topk("chunk=4,count=5", 4), ConfigError, "[1, chunk = 4], got 5");
  TW_EXPECT_THROW(chunk_topk("average=some", 4), ConfigError, "all or senders");
  const auto codec = chunk_topk("chunk=4,count=2", 8);
  at::Tensor out, bad = at::full({codec->max_bytes()}, 0xff, at::kByte);
  EXPECT_THROW(codec->decode({.parts = {bad}}, out, Write::set), DataError);
}

}  // namespace thinwire
