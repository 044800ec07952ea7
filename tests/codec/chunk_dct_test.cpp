// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/kernels/dct.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> chunk_dct(const std::string& options, std::vector<std::int64_t> shape) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, std::move(shape)}};
  return codecs().find("chunk_dct").make(parse_spec("chunk_dct{" + options + "}"), descs);
}

at::Tensor dct_decoded(Codec& codec, const at::Tensor& x) {
  at::Tensor out;
  codec.decode(codec.encode(x, {}), out, Write::set);
  return out.clone();
}

at::Tensor matrix_of(std::int64_t n) {
  auto values = kernels::dct_matrix(n);
  return at::from_blob(values.data(), {n, n}, at::TensorOptions(at::kFloat)).clone();
}

}  // namespace

TEST(ChunkDct, TheTransformIsOrthonormal) {
  for (const std::int64_t n : {1, 2, 7, 50, 64}) {
    const at::Tensor d = matrix_of(n);
    EXPECT_LT((d.t().matmul(d) - at::eye(n)).abs().max().item<float>(), 1e-6F) << n;
  }
  const at::Tensor d = matrix_of(4);
  EXPECT_NEAR(d[0][0].item<double>(), 0.5, 1e-7);
  EXPECT_NEAR(d[1][0].item<double>(), std::sqrt(0.5) * std::cos(std::acos(-1.0) / 8), 1e-6);
}

TEST(ChunkDct, IsExactWhereAllCoefficientsAreSent) {
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{128, 64}, {7}, {130}, {6, 5, 4}}) {
    const auto codec = chunk_dct("count=1000000", shape);
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    const at::Tensor x = at::randn({n});
    EXPECT_LT((dct_decoded(*codec, x) - x).abs().max().item<float>(), 1e-5F);
  }
}

TEST(ChunkDct, KeepsTheLargestCoefficientsOfABlockOfTwoDimensions) {
  const auto codec = chunk_dct("chunk=8,count=1", {8, 16});
  const at::Tensor d = matrix_of(8);
  // One frequency in each of the two blocks, and a smaller one beside the first.
  const at::Tensor wave = at::outer(d[2], d[5]), small = at::outer(d[0], d[1]);
  const at::Tensor x = at::cat({wave * 3 + small, small * -2}, 1).contiguous();
  const at::Tensor want = at::cat({wave * 3, small * -2}, 1);
  EXPECT_TRUE(at::allclose(dct_decoded(*codec, x.view({-1})).view({8, 16}), want, 1e-5, 1e-5));
}

// Peng et al. 2024: 32 of 64 x 64 at 12 bytes each are 384 bytes a block; here 164.
TEST(ChunkDct, TakesFiveBytesACoefficient) {
  EXPECT_EQ(chunk_dct("", {64, 64})->max_bytes(), 128 + 28 + 8);
  EXPECT_LT(chunk_dct("", {640, 640})->max_bytes(), 100 * 165);
  EXPECT_LT(chunk_dct("bits=4", {64, 64})->max_bytes(), 16 + 4 + 37);
}

TEST(ChunkDct, CutsByTheLargestDivisor) {
  EXPECT_EQ(chunk_dct("count=1", {100, 63})->max_bytes(), 2 * 4 + position_bytes(6300, 2))
      << "50 x 63";
  EXPECT_EQ(chunk_dct("count=1", {128})->max_bytes(), 2 * 4 + position_bytes(128, 2));
}

TEST(ChunkDct, AveragesCoefficientsOfThoseThatHaveSentThem) {
  const at::Tensor d = matrix_of(8);
  for (const std::string average : {"all", "senders"}) {
    const auto codec = chunk_dct("chunk=8,count=1,average=" + average, {8});
    const auto copy = [&](const at::Tensor& x) {
      return Payload{{codec->encode(x, {}).parts[0].clone()}};
    };
    const std::vector<Payload> three{copy(d[1] * 4), copy(d[1] * 8), copy(d[3] * 9)};
    at::Tensor out;
    codec->combine(three, 3, out);
    const at::Tensor want = average == "all" ? d[1] * 4 + d[3] * 3 : d[1] * 6 + d[3] * 9;
    EXPECT_TRUE(at::allclose(out, want, 1e-5, 1e-5)) << average << out;
  }
}

TEST(ChunkDct, RefusesOptions) {
  TW_EXPECT_THROW(chunk_dct("chunk=0", {4}), ConfigError, "chunk must be in [1, 1024], got 0");
  TW_EXPECT_THROW(chunk_dct("count=0", {4}), ConfigError, "count must be at least 1, got 0");
  TW_EXPECT_THROW(chunk_dct("bits=9", {4}), ConfigError, "got 9");
}

}  // namespace thinwire
