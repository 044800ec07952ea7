// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> powersgd(const std::string& spec, const std::vector<TensorDesc>& descs) {
  return codecs().find("powersgd").make(parse_spec(spec), descs);
}
TensorDesc matrix(std::int64_t rows, std::int64_t columns) {
  return {"m", DType::f32, {rows, columns}};
}

/// One step on one rank: the sum of its rounds; x is what stays behind then.
at::Tensor step(Codec& codec, at::Tensor& x) {
  at::Tensor out;
  for (int round = 0; round < codec.traits().rounds; ++round) {
    Payload payload = codec.encode(x, {.seed = 1, .round = round});
    codec.residual(x, payload, x);
    codec.commit(payload);
    codec.decode(payload, out, round == 0 ? Write::set : Write::add);
  }
  return out;
}

}  // namespace

TEST(PowerSgd, KF21_FactorsOnlyWhereTheyAreSmaller) {
  const std::vector<TensorDesc> small{matrix(6, 6)}, large{matrix(64, 64)};
  EXPECT_EQ(powersgd("powersgd{rank=4}", small)->max_bytes(), 144);
  EXPECT_EQ(powersgd("powersgd{rank=4}", large)->max_bytes(), 2048);
}

TEST(PowerSgd, IsExactOnMatricesOfItsRank) {
  const std::vector<TensorDesc> descs{matrix(20, 30), {"bias", DType::f32, {20}}};
  const auto codec = powersgd("powersgd{rank=2}", descs);
  const at::Tensor m = at::mm(at::randn({20, 2}), at::randn({2, 30}));
  const at::Tensor bias = at::randn({20});
  at::Tensor x = at::cat({m.view({-1}), bias});
  const at::Tensor all = x.clone();
  at::Tensor out = step(*codec, x);
  x = all.clone();
  out = step(*codec, x);
  EXPECT_LT((out - all).abs().max().item<float>(), 1e-4);
  EXPECT_TRUE(at::equal(out.narrow(0, 600, 20), bias)) << "vectors travel as they are";
}

TEST(PowerSgd, SentAndLeftAreWhatWasProduced) {
  for (const char* spec : {"powersgd{rank=1}", "powersgd{rank=3}", "powersgd{rank=2,rounds=1}"})
    for (const auto& shape : {std::pair{40, 7}, std::pair{7, 40}, std::pair{3, 200}}) {
      const std::vector<TensorDesc> descs{matrix(shape.first, shape.second)};
      const auto codec = powersgd(spec, descs);
      for (int t = 0; t < 3; ++t) {
        const at::Tensor all = at::randn({shape.first * shape.second});
        at::Tensor x = all.clone();
        const at::Tensor out = step(*codec, x);
        EXPECT_LT((out + x - all).abs().max().item<float>(), 1e-5) << spec;
        EXPECT_LT(x.norm().item<float>(), all.norm().item<float>()) << spec;
      }
    }
}

TEST(PowerSgd, SurvivesZeroColumns) {
  const std::vector<TensorDesc> descs{matrix(16, 16)};
  const auto codec = powersgd("powersgd{rank=3}", descs);
  for (int t = 0; t < 3; ++t) {
    at::Tensor x = at::zeros({256});
    EXPECT_EQ(step(*codec, x).abs().max().item<float>(), 0);
  }
  const at::Tensor m = at::mm(at::randn({16, 3}), at::randn({3, 16})).view({-1});
  at::Tensor x = m.clone();
  step(*codec, x);
  x = m.clone();
  EXPECT_LT((step(*codec, x) - m).abs().max().item<float>(), 1e-4) << "zeros have left no trace";
}

TEST(PowerSgd, ReadsItsOptions) {
  TW_EXPECT_THROW(powersgd("powersgd{rank=0}", {}), ConfigError, "rank must be in [1, 64], got 0");
  TW_EXPECT_THROW(powersgd("powersgd{rounds=99}", {}), ConfigError, "[1, 16], got 99");
}

}  // namespace thinwire
