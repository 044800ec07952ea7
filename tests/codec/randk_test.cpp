// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> randk(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("randk").make(parse_spec(spec), descs);
}

}  // namespace

TEST(RandK, SharesItsPositionsBetweenRanksAndChangesThemWithTheStep) {
  const auto a = randk("randk{count=5}", 100), b = randk("randk{count=5}", 100);
  const at::Tensor x = at::ones({100});
  at::Tensor of_a, of_b, later;
  a->decode(a->encode(x, {.step = 3, .seed = 1, .exchange = 2, .rank = 0}), of_a, Write::set);
  b->decode(b->encode(x, {.step = 3, .seed = 1, .exchange = 2, .rank = 1}), of_b, Write::set);
  EXPECT_TRUE(at::equal(of_a, of_b));
  EXPECT_EQ(of_a.sum().item<float>(), 5);
  a->decode(a->encode(x, {.step = 4, .seed = 1, .exchange = 2}), later, Write::set);
  EXPECT_FALSE(at::equal(of_a, later));
}

TEST(RandK, IsUnbiasedWhereAsked) {
  const auto codec = randk("randk{count=7,unbiased=yes}", 50);
  const at::Tensor x = at::arange(50, at::kFloat);
  at::Tensor sum = at::zeros({50});
  constexpr int kDraws = 4000;
  for (int step = 0; step < kDraws; ++step)
    codec->decode(codec->encode(x, {.step = step, .seed = 9}), sum, Write::add);
  EXPECT_LT((sum / kDraws - x).abs().max().item<float>(), 0.12 * 50);
}

}  // namespace thinwire
