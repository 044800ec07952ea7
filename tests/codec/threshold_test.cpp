// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/kernels/thresholds.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> threshold(const std::string& options, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("threshold").make(parse_spec("threshold{" + options + "}"), descs);
}

at::Tensor decoded(Codec& codec, const at::Tensor& x, std::int64_t step = 0) {
  at::Tensor out;
  codec.decode(codec.encode(x, {.step = step}), out, Write::set);
  return out.clone();
}

std::int64_t sent(Codec& codec, const at::Tensor& x, std::int64_t step = 0) {
  return decoded(codec, x, step).ne(0).sum().item<std::int64_t>();
}

/// Distinct magnitudes of both signs, shuffled.
at::Tensor distinct(std::int64_t n) {
  const at::Tensor order = at::arange(n).mul(7919).remainder(n);
  const at::Tensor size = order.add(1).to(at::kFloat);
  return at::where(at::arange(n).remainder(3).eq(0), -size, size);
}

/// A million values of N(0, 1), the greatest as in a random sample.
std::vector<float> normal_values() {
  const std::int64_t n = 1'000'000;
  at::Tensor p = (at::arange(n, at::kDouble) + 0.5) / n;
  const at::Tensor x = (at::erfinv(p * 2 - 1) * std::sqrt(2.0)).to(at::kFloat).contiguous();
  std::vector<float> out(x.const_data_ptr<float>(), x.const_data_ptr<float>() + n);
  out[0] = -5.1855F;
  return out;
}

}  // namespace

// Fang et al. 2018, checked on N(0, 1), n = 1e6, k = 1,000.
TEST(Threshold, TrimmingLeavesAPercentInThreePasses) {
  const auto x = normal_values();
  const auto bound = kernels::trimmed_bound(x, 1000, 0.2);
  EXPECT_EQ(bound.passes, 3);
  EXPECT_NEAR(static_cast<double>(bound.count), 10'699, 300);
}

TEST(Threshold, ASearchThatEndsEarlySelectsLessThanHalf) {
  const auto x = normal_values();
  const auto coarse = kernels::searched_bound(x, 1000, 0.2);
  EXPECT_EQ(coarse.passes, 3);
  EXPECT_EQ(coarse.ratio, 0.625);
  EXPECT_NEAR(coarse.threshold, 3.54, 0.01);
  EXPECT_NEAR(static_cast<double>(coarse.count), 437, 50);
  EXPECT_LT(coarse.count, 500) << "why the default goes on";
  const auto fine = kernels::searched_bound(x, 1000, 0.02);
  EXPECT_EQ(fine.passes, 4);
  EXPECT_NEAR(static_cast<double>(fine.count), 1114, 80);
}

TEST(Threshold, AnAllZeroGradientEndsTheSearch) {
  const std::vector<float> zeros(1000, 0.0F), equal(1000, 0.3F);
  EXPECT_EQ(kernels::trimmed_bound(zeros, 10, 0.2).count, 1000);
  EXPECT_LE(kernels::searched_bound(zeros, 10, 0.02).passes, 8);
  EXPECT_EQ(kernels::trimmed_bound(equal, 10, 0.2).count, 1000) << "the mean is no more";
  for (const std::string method : {"exact", "trimmed", "binary_search"}) {
    const auto codec = threshold("ratio=0.01,method=" + method, 1000);
    EXPECT_EQ(sent(*codec, at::zeros({1000})), 0);
    EXPECT_EQ(sent(*codec, distinct(1000), 1),
              method == "binary_search" ? sent(*codec, distinct(1000), 2) : 10)
        << method << ": a bound of zero is not kept";
  }
}

TEST(Threshold, SendsWhatReachesAPlainValue) {
  const auto codec = threshold("value=2.5", 4);
  const at::Tensor x = at::tensor({1.0F, -2.5F, 2.4F, 7.0F});
  EXPECT_TRUE(at::equal(decoded(*codec, x), at::tensor({0.0F, -2.5F, 0.0F, 7.0F})));
  EXPECT_EQ(codec->encode(at::zeros({4}), {}).bytes(), 0) << "nothing is no bytes";
}

// Gupta et al. 2020: after a refresh N - floor(eta N) survive; until the next their number floats.
TEST(Threshold, ABoundLivesForSomeSteps) {
  const auto codec = threshold("ratio=0.1,life=3", 1000);
  const at::Tensor x = distinct(1000);
  EXPECT_EQ(sent(*codec, x, 0), 100);
  EXPECT_EQ(sent(*codec, x, 1), 100);
  EXPECT_EQ(sent(*codec, x * 2, 2), 550) << "magnitudes from 450.5 on reach 901";
  EXPECT_EQ(sent(*codec, x * 2, 3), 100);
  const auto every = threshold("ratio=0.1", 1000);
  const auto largest =
      codecs().find("topk").make(parse_spec("topk{ratio=0.1}"), {{{"w", DType::f32, {1000}}}});
  for (int t = 0; t < 3; ++t)
    EXPECT_TRUE(at::equal(decoded(*every, x * (t + 1), t), decoded(*largest, x * (t + 1), t)));
}

TEST(Threshold, EverythingIsDense) {
  const auto codec = threshold("ratio=1", 1000);
  const at::Tensor x = at::randn({1000});
  EXPECT_TRUE(at::equal(decoded(*codec, x), x));
  EXPECT_EQ(codec->encode(x, {}).bytes(), 4000);
  EXPECT_EQ(codec->max_bytes(), 4000);
}

TEST(Threshold, TrimmedIsExact) {
  const auto codec = threshold("ratio=0.01,method=trimmed", 100'000);
  const auto largest =
      codecs().find("topk").make(parse_spec("topk{ratio=0.01}"), {{{"w", DType::f32, {100'000}}}});
  const at::Tensor x = at::randn({100'000});
  EXPECT_TRUE(at::equal(decoded(*codec, x), decoded(*largest, x)));
}

TEST(Threshold, TheQuantisedFormSendsOneSideAsItsMean) {
  const auto codec = threshold("count=2,values=mean", 6);
  const at::Tensor x = at::tensor({1.0F, -2.0F, 3.0F, -5.0F, 6.0F, -4.0F});
  EXPECT_TRUE(at::equal(decoded(*codec, x, 0), at::tensor({0.F, 0.F, 4.5F, 0.F, 4.5F, 0.F})));
  EXPECT_TRUE(at::equal(decoded(*codec, x, 1), at::tensor({0.F, 0.F, 0.F, -4.5F, 0.F, -4.5F})));
  const auto one = threshold("ratio=0.001,values=mean", 1'000'000);
  const auto own = threshold("ratio=0.001", 1'000'000);
  const at::Tensor big = distinct(1'000'000);
  EXPECT_EQ(one->encode(big, {}).bytes(), 8 + position_bytes(1'000'000, 1000));
  EXPECT_EQ(own->encode(big, {}).bytes(), 4000 + position_bytes(1'000'000, 1000));
}

TEST(Threshold, KF59_ASideMayBeEmpty) {
  const auto codec = threshold("count=2,values=mean", 2);
  EXPECT_TRUE(at::equal(decoded(*codec, at::tensor({1.F, 3.F}), 0), at::tensor({2.F, 2.F})));
  EXPECT_TRUE(at::equal(decoded(*codec, at::tensor({1.F, 3.F}), 1), at::zeros({2})));
  EXPECT_TRUE(at::equal(decoded(*codec, at::tensor({-1.F, -3.F}), 2), at::zeros({2})));
  EXPECT_TRUE(at::equal(decoded(*codec, at::tensor({-1.F, -3.F}), 3), at::tensor({-2.F, -2.F})));
  at::Tensor left = at::tensor({1.F, 3.F});
  codec->residual(left, codec->encode(left, {}), left);
  EXPECT_TRUE(at::equal(left, at::tensor({-1.F, 1.F}))) << "the value counts, not the code";
}

TEST(Threshold, KeepsItsBoundThroughACheckpoint) {
  struct Carry : StateVisitor {
    std::map<std::string, at::Tensor> kept;
    bool load = false;
    void tensor(const std::string&, at::Tensor&) override { ADD_FAILURE() << "a rank's own"; }
    void integer(const std::string&, std::int64_t&) override {}
    void elements(const std::string&, at::Tensor&) override {}
    void own(const std::string& name, at::Tensor& value) override {
      if (!load && value.defined()) kept[name] = value;
      if (load && kept.contains(name)) value = kept[name];
    }
  } carry;
  const at::Tensor x = distinct(1000);
  const auto first = threshold("ratio=0.1,life=100", 1000);
  sent(*first, x, 0);
  first->visit_state(carry);
  ASSERT_EQ(carry.kept.size(), 1u);
  EXPECT_TRUE(carry.kept.contains("bound/w"));
  carry.load = true;
  const auto second = threshold("ratio=0.1,life=100", 1000);
  second->visit_state(carry);
  EXPECT_EQ(sent(*second, x * 2, 1), 550);
}

TEST(Threshold, RefusesOptionsAndBytes) {
  TW_EXPECT_THROW(threshold("method=fast", 4), ConfigError, "trimmed or binary_search, got 'fast'");
  TW_EXPECT_THROW(threshold("value=0", 4), ConfigError, "value must be above 0");
  TW_EXPECT_THROW(threshold("value=1,method=exact", 4), ConfigError, "without a method");
  TW_EXPECT_THROW(threshold("value=1,ratio=0.1", 4), ConfigError, "'ratio'");
  TW_EXPECT_THROW(threshold("life=0", 4), ConfigError, "life must be at least 1, got 0");
  TW_EXPECT_THROW(threshold("values=max", 4), ConfigError, "own or mean, got 'max'");
  const auto codec = threshold("count=2,values=mean", 100);
  at::Tensor out, bad = at::full({9}, 0xff, at::kByte);
  TW_EXPECT_THROW(codec->decode({.parts = {bad}}, out, Write::set), DataError, "threshold");
}

}  // namespace thinwire
