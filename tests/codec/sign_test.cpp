// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> sign(const std::string& spec, std::vector<std::int64_t> counts) {
  std::vector<TensorDesc> descs;
  for (const auto n : counts) descs.push_back({"w" + std::to_string(n), DType::f32, {n}});
  return codecs().find("sign").make(parse_spec(spec), descs);
}

}  // namespace

TEST(Sign, ScalesByTheMeanMagnitudeOfEachTensor) {
  const auto codec = sign("sign", {3, 0, 11});
  at::Tensor x = at::zeros({14});
  x.narrow(0, 0, 3).copy_(at::tensor({1.0f, -2.0f, 0.0f}));
  x.narrow(0, 3, 11).fill_(-4);
  const Payload payload = codec->encode(x, {});
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out.narrow(0, 0, 3), at::tensor({1.0f, -1.0f, 1.0f}))) << "sign(0) = +1";
  EXPECT_TRUE(at::equal(out.narrow(0, 3, 11), at::full({11}, -4.0f)));
  codec->decode(payload, out, Write::add);
  EXPECT_EQ(out[13].item<float>(), -8);
  codec->residual(x, payload, x);
  EXPECT_TRUE(at::equal(x.narrow(0, 0, 3), at::tensor({0.0f, -1.0f, -1.0f})));
  EXPECT_EQ(x.narrow(0, 3, 11).abs().max().item<float>(), 0);
}

TEST(Sign, KF29_OneBitAValue) {
  EXPECT_EQ(sign("sign", {1025})->max_bytes(), 129 + 4);
  EXPECT_EQ(sign("sign", {10'020'874})->max_bytes(), 1'252'610 + 4);
  EXPECT_EQ(sign("sign{scale=vote}", {1025})->max_bytes(), 129);
  const auto codec = sign("sign", {1025});
  const at::Tensor x = at::randn({1025});
  const Payload payload = codec->encode(x, {});
  EXPECT_EQ(payload.bytes(), 133);
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out.lt(0), x.lt(0))) << "the last partial byte included";
}

TEST(Sign, VotesByMajority) {
  const auto codec = sign("sign{scale=vote}", {3});
  at::Tensor sum = at::tensor({2.0f, 0.0f, -2.0f});
  codec->conclude(sum, 2);
  EXPECT_TRUE(at::equal(sum, at::tensor({1.0f, 1.0f, -1.0f})));
}

TEST(Sign, RefusesWhatNobodyMakes) {
  const auto codec = sign("sign", {8});
  at::Tensor out, bad = at::zeros({4}, at::kByte);
  TW_EXPECT_THROW(codec->decode({.parts = {bad}}, out, Write::set), DataError,
                  "must have 5 bytes, got 4");
  bad = at::full({5}, 0xff, at::kByte);
  TW_EXPECT_THROW(codec->decode({.parts = {bad}}, out, Write::set), DataError, "scale");
  TW_EXPECT_THROW(sign("sign{scale=max}", {3}), ConfigError, "mean or vote");
}

}  // namespace thinwire
