// SPDX-License-Identifier: Apache-2.0
// Yu et al. 2018: phases and identities.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> pca(const std::string& options, std::vector<std::int64_t> shape) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, std::move(shape)}};
  return codecs().find("pca").make(parse_spec("pca{" + options + "}"), descs);
}

/// A step in which all ranks send x: what comes out, and the bytes.
at::Tensor step(Codec& codec, const at::Tensor& x, Bytes* bytes = nullptr) {
  Payload payload{{codec.encode(x, {.seed = 1}).parts[0].clone()}};
  if (bytes) *bytes = payload.bytes();
  codec.commit(payload);
  at::Tensor out;
  codec.decode(payload, out, Write::set);
  return out.clone();
}

at::Tensor random(std::vector<std::int64_t> shape, std::uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}

double off(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

}  // namespace

TEST(Pca, CollectsThenCompressesInTurn) {
  const auto codec = pca("block=16,keep=2,collect=2,use=3", {40, 16});
  for (int t = 0; t < 12; ++t) {
    const at::Tensor x = random({640}, static_cast<std::uint64_t>(t));
    Bytes bytes = 0;
    const at::Tensor out = step(*codec, x, &bytes);
    EXPECT_EQ(bytes, t % 5 < 2 ? 2560 : 320) << t;
    if (t % 5 < 2) {
      EXPECT_TRUE(at::equal(out, x)) << t;
    }
  }
}

TEST(Pca, IsExactWithAWholeBasisAndInASubspace) {
  const auto whole = pca("block=16,keep=16,collect=1,use=9", {40, 16});
  step(*whole, random({640}, 1));
  EXPECT_LT(off(step(*whole, random({640}, 2)), random({640}, 2)), 1e-5);
  const at::Tensor directions = random({3, 16}, 3);
  const auto slices = [&](std::uint64_t seed) {
    return random({40, 3}, seed).matmul(directions).view({-1});
  };
  const auto three = pca("block=16,keep=3,collect=1,use=9", {40, 16});
  step(*three, slices(4));
  EXPECT_LT(off(step(*three, slices(5)), slices(5)), 1e-5) << "other slices of that subspace";
  EXPECT_GT(off(step(*three, random({640}, 6)), random({640}, 6)), 0.5);
}

TEST(Pca, TheSumOfCodesIsTheCodeOfTheSum) {
  const auto codec = pca("block=16,keep=4,collect=1,use=9", {50, 16});
  step(*codec, random({800}, 1));
  at::Tensor codes, sum = at::zeros({800});
  for (std::uint64_t rank = 0; rank < 5; ++rank) {
    const at::Tensor x = random({800}, 10 + rank), y = codec->encode(x, {}).parts[0].clone();
    codes = codes.defined() ? codes + y : y;
    sum += x;
  }
  EXPECT_LT((codes - codec->encode(sum, {}).parts[0]).abs().max().item<double>(), 1e-5);
}

TEST(Pca, CatchesTheEnergyOfTheLeadingEigenvalues) {
  const at::Tensor x = random({60, 16}, 1) * at::exp(at::arange(16, at::kFloat) * -0.3);
  const auto codec = pca("block=16,keep=4,collect=1,use=9", {60, 16});
  const at::Tensor flat = x.contiguous().view({-1});
  step(*codec, flat);
  const double lost = off(step(*codec, flat), flat);
  const at::Tensor values = at::linalg_eigvalsh(x.t().matmul(x));  // rising
  const double caught = values.narrow(0, 12, 4).sum().item<double>() / values.sum().item<double>();
  EXPECT_NEAR(1 - lost * lost, caught, 1e-4);
}

TEST(Pca, SendsSmallTensorsAndWhatIsLeftBehindTheLastSliceDense) {
  const std::vector<TensorDesc> descs{
      {"w", DType::f32, {70}}, {"b", DType::f32, {24}}, {"c", DType::f32, {0}}};
  const auto codec =
      codecs().find("pca").make(parse_spec("pca{block=8,keep=1,collect=1,use=9}"), descs);
  const at::Tensor x = random({94}, 1);
  step(*codec, x);
  Bytes bytes = 0;
  const at::Tensor out = step(*codec, x, &bytes);
  EXPECT_EQ(bytes, 4 * (8 * 1 + 6 + 24));
  EXPECT_TRUE(at::equal(out.narrow(0, 64, 30), x.narrow(0, 64, 30)));
  EXPECT_FALSE(at::equal(out.narrow(0, 0, 64), x.narrow(0, 0, 64)));
}

TEST(Pca, GoesOnAfterACheckpoint) {
  struct Carry : StateVisitor {
    std::map<std::string, at::Tensor> kept;
    std::int64_t steps = 0;
    bool load = false;
    void tensor(const std::string& name, at::Tensor& value) override {
      if (!load && value.defined()) kept[name] = value.clone();
      if (load && kept.contains(name)) value = kept[name].clone();
    }
    void integer(const std::string&, std::int64_t& value) override {
      (load ? value : steps) = load ? steps : value;
    }
    void elements(const std::string&, at::Tensor&) override {}
  };
  for (const int at : {1, 3, 5}) {  // while it collects, while it compresses, and at the seam
    const auto first = pca("block=16,keep=2,collect=2,use=3", {40, 16});
    for (int t = 0; t < at; ++t) step(*first, random({640}, static_cast<std::uint64_t>(t)));
    Carry carry;
    first->visit_state(carry);
    carry.load = true;
    const auto second = pca("block=16,keep=2,collect=2,use=3", {40, 16});
    second->visit_state(carry);
    for (int t = at; t < 12; ++t) {
      const at::Tensor x = random({640}, static_cast<std::uint64_t>(t));
      EXPECT_TRUE(at::equal(step(*first, x), step(*second, x))) << at << " " << t;
    }
  }
}

TEST(Pca, NothingSeenIsNothingLost) {
  const auto codec = pca("block=4,keep=2,collect=1,use=2", {16});
  for (int t = 0; t < 6; ++t) EXPECT_TRUE(step(*codec, at::zeros({16})).eq(0).all().item<bool>());
}

TEST(Pca, RefusesOptions) {
  TW_EXPECT_THROW(pca("block=1", {4}), ConfigError, "block must be in [2, 4096], got 1");
  TW_EXPECT_THROW(pca("block=8,keep=9", {4}), ConfigError, "[1, min(64, block = 8)], got 9");
  TW_EXPECT_THROW(pca("collect=0", {4}), ConfigError, "collect must be at least 1 step, got 0");
}

}  // namespace thinwire
