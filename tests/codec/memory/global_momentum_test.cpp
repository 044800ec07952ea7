// SPDX-License-Identifier: Apache-2.0
// Shi et al. 2019: identities, and the order of methods on ranks that differ.
#include <gtest/gtest.h>
#include "tests/codec/memory/workers.h"

#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

const std::vector<TensorDesc> kTwenty{{"w", DType::f64, {20}}};

/// Rank r of 4 pulls to a point of its own: sum of lambda (w - c_r)^2 / 2, lambda from 1 to 5.
struct Quadratic {
  at::Tensor lambda = at::linspace(1, 5, 20, at::kDouble);
  std::vector<at::Tensor> centre;
  Quadratic() {
    for (int r = 0; r < 4; ++r)
      centre.push_back(at::sin(at::arange(20, at::kDouble) * (1.3 + r) + r) * 10);
  }
  std::vector<at::Tensor> gradients(const at::Tensor& w) const {
    std::vector<at::Tensor> out;
    for (const at::Tensor& c : centre) out.push_back(lambda * (w - c));
    return out;
  }
  double above_least(const at::Tensor& w) const {
    const at::Tensor off = w - (centre[0] + centre[1] + centre[2] + centre[3]) / 4;
    return (lambda * off * off).sum().item<double>() / 2;
  }
  /// Mean over the last quarter of the steps.
  double end_of(const std::string& form, double eta, int steps) const {
    Workers workers(4, form, kTwenty);
    at::Tensor w = at::zeros({20}, at::kDouble);
    double sum = 0;
    for (int t = 0; t < steps; ++t) {
      w = w - workers.step(gradients(w)) * eta;
      if (4 * t >= 3 * steps) sum += above_least(w);
    }
    EXPECT_TRUE(workers.equal());
    return sum / (steps / 4);
  }
};

}  // namespace

TEST(GlobalMomentum, IsSgdWithMomentumWhereEverythingIsSent) {
  const Quadratic problem;
  Workers workers(4, "global_momentum|none", kTwenty);
  at::Tensor w = at::zeros({20}, at::kDouble), v = w, buffer = w;
  for (int t = 0; t < 200; ++t) {
    w = w - workers.step(problem.gradients(w)) * 0.005;
    at::Tensor mean = at::zeros({20}, at::kDouble);
    for (const at::Tensor& g : problem.gradients(v)) mean += g / 4;
    buffer = mean + buffer * 0.9;
    v = v - buffer * 0.005;
  }
  EXPECT_LT((w - v).abs().max().item<double>(), 1e-13);
}

// w - eta mean(e) follows momentum SGD with the same gradients, whatever the codec.
TEST(GlobalMomentum, TheVirtualSequenceIsThatOfMomentum) {
  const Quadratic problem;
  for (const std::string codec : {"topk{count=2}", "randk{count=2}", "sign"}) {
    Workers workers(4, "global_momentum|" + codec, kTwenty);
    constexpr double kEta = 0.001, kBeta = 0.9;
    at::Tensor w = at::zeros({20}, at::kDouble), earlier = w, v = w;
    for (int t = 0; t < 200; ++t) {
      at::Tensor mean = at::zeros({20}, at::kDouble);
      const auto gradients = problem.gradients(w);
      for (const at::Tensor& g : gradients) mean += g / 4;
      const at::Tensor next = w - workers.step(gradients) * kEta;
      v = v - mean * kEta + (w - earlier) * kBeta;
      earlier = w;
      w = next;
      at::Tensor virtual_w = w.clone();
      for (int r = 0; r < 4; ++r) virtual_w -= workers.kept(r, "error") * (kEta / 4);
      ASSERT_LT((virtual_w - v).abs().max().item<double>(), 1e-12) << codec << " " << t;
    }
  }
}

TEST(GlobalMomentum, ComesCloserThanLocalMomentumWhereRanksDiffer) {
  const Quadratic problem;
  for (const std::string codec : {"topk{count=4}", "topk{count=1}"}) {
    const double global = problem.end_of("global_momentum|" + codec, 0.005, 4000);
    EXPECT_LT(5 * global, problem.end_of("momentum|ef|" + codec, 0.005, 4000)) << codec;
    EXPECT_LT(2 * global, problem.end_of("dgc_momentum|" + codec, 0.005, 4000)) << codec;
  }
}

TEST(GlobalMomentum, TakesAStepBack) {
  EXPECT_LT(changed_by_a_step_back("global_momentum|topk{count=2}"), 1e-14);
}

TEST(GlobalMomentum, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "global_momentum{beta=1}|none", kTwenty), ConfigError,
                  "global_momentum: beta must be in [0, 1), got 1");
}

}  // namespace thinwire::test
