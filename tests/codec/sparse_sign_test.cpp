// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::one_tensor;

TEST(SparseSign, SendsTheSignsOfTheLargestOfEachTensor) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {5}}, {"b", DType::f32, {2}}};
  const auto codec =
      codecs().find("sparse_sign").make(parse_spec("sparse_sign{ratio=0.25}"), descs);
  const at::Tensor x = at::tensor({1.0f, -9.0f, 3.0f, -2.0f, 0.0f, 0.1f, -0.2f});
  const Payload payload = codec->encode(x, {});
  at::Tensor out, left = x.clone();
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, at::tensor({0.0f, -1.0f, 1.0f, 0.0f, 0.0f, 0.0f, -1.0f})))
      << "ceil(0.25 n) of each: 2 and 1";
  codec->residual(x, payload, left);
  EXPECT_TRUE(at::equal(left, at::tensor({1.0f, 0.0f, 0.0f, -2.0f, 0.0f, 0.1f, 0.0f})))
      << "what was sent is forgotten as a whole";
}

TEST(SparseSign, VotesAreOfThoseWhoSentOne) {
  const auto codec = one_tensor("sparse_sign{ratio=0.5}", 4);
  std::vector<Payload> payloads;
  for (const at::Tensor& x :
       {at::tensor({5.0f, -5.0f, 0.0f, 0.1f}), at::tensor({5.0f, 5.0f, 0.0f, 0.1f}),
        at::tensor({0.1f, 0.0f, 0.0f, -5.0f})})
    payloads.push_back({.parts = {codec->encode(x, {}).parts[0].clone()}});
  at::Tensor out;
  codec->combine(payloads, 3, out);
  EXPECT_TRUE(at::equal(out, at::tensor({1.0f, 0.0f, 0.0f, -1.0f})))
      << "a tie and what nobody sent are 0: " << out;
}

TEST(SparseSign, BytesAreLogarithmic) {
  // k (1 + log2(n/k) + 1.4) bits would be 0.47 n at a tenth; positions as Elias and Fano's.
  const auto codec = one_tensor("sparse_sign", 100'000);
  EXPECT_LE(codec->max_bytes(), static_cast<Bytes>(10'000 * (1 + 3.33 + 2) / 8));
  EXPECT_GE(codec->max_bytes(), static_cast<Bytes>(10'000 * (1 + 3.33 + 1.4) / 8));
}

TEST(SparseSign, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("sparse_sign{ratio=0}", 1), ConfigError, "(0, 1], got 0");
}

}  // namespace thinwire
