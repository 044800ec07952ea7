// SPDX-License-Identifier: Apache-2.0
// Shi et al. 2019: identities, and the order of methods on ranks that differ.
#include <fmt/format.h>
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

// GMC+: a rank's parameters stand at w - lambda eta e, and w goes as without, with gradients there.
TEST(GlobalMomentum, DetachedParametersAreOffByTheRanksOwnError) {
  const Quadratic problem;
  constexpr double kEta = 0.005;
  for (const double lambda : {0.3, 1.0})
    for (const std::string codec : {"topk{count=2}", "randk{count=2}", "none"}) {
      Workers plus(4, fmt::format("global_momentum{{detach={}}}|{}", lambda, codec), kTwenty);
      Workers plain(4, "global_momentum|" + codec, kTwenty);
      at::Tensor w = at::zeros({20}, at::kDouble);
      std::vector<at::Tensor> x(4, w);
      for (int t = 0; t < 100; ++t) {
        std::vector<at::Tensor> at_x, at_shifted;
        for (int r = 0; r < 4; ++r) {
          const auto k = static_cast<std::size_t>(r);
          at::Tensor shifted = w;
          if (t > 0) shifted = w - plain.kept(r, "error") * (lambda * kEta);
          ASSERT_LT((x[k] - shifted).abs().max().item<double>(), 1e-12) << codec << t;
          at_x.push_back(problem.gradients(x[k])[k]);
          at_shifted.push_back(problem.gradients(shifted)[k]);
        }
        plus.step(at_x);
        w = w - plain.step(at_shifted) * kEta;
        for (std::size_t k = 0; k < 4; ++k) x[k] = x[k] - plus.last_received[k] * kEta;
      }
    }
}

// 2 of 20 values at random: gradients at w itself come too late for a rate at which detached ones
// are in time, and come less close at a fourth of it.
TEST(GlobalMomentum, DetachingHelpsRandomSelections) {
  const Quadratic problem;
  const auto end_of = [&](double lambda, double eta) {
    Workers workers(4, fmt::format("global_momentum{{detach={}}}|randk{{count=2}}", lambda),
                    kTwenty);
    std::vector<at::Tensor> x(4, at::zeros({20}, at::kDouble));
    double sum = 0;
    for (int t = 0; t < 4000; ++t) {
      std::vector<at::Tensor> g;
      for (std::size_t k = 0; k < 4; ++k) g.push_back(problem.lambda * (x[k] - problem.centre[k]));
      workers.step(g);
      at::Tensor w = at::zeros({20}, at::kDouble);
      for (int r = 0; r < 4; ++r) {
        at::Tensor& own = x[static_cast<std::size_t>(r)];
        own = own - workers.last_received[static_cast<std::size_t>(r)] * eta;
        w += (own + workers.kept(r, "error") * (lambda * eta)) / 4;
      }
      if (t >= 3000) sum += problem.above_least(w) / 1000;
    }
    return sum;
  };
  const double late = end_of(0, 0.02);
  EXPECT_TRUE(!(late < 1e6)) << late << ": diverges";
  EXPECT_LT(end_of(0.3, 0.02), 1e-3);
  EXPECT_LT(end_of(1, 0.02), 1e-20);
  const double plain = end_of(0, 0.005), some = end_of(0.3, 0.005);
  EXPECT_LT(some, 1e-4 * plain) << plain;
  EXPECT_LT(end_of(1, 0.005), 1e-4 * some) << some;
}

TEST(GlobalMomentum, TakesAStepBack) {
  EXPECT_LT(changed_by_a_step_back("global_momentum|topk{count=2}"), 1e-14);
  EXPECT_LT(changed_by_a_step_back("global_momentum{detach=0.3}|topk{count=2}"), 1e-14);
}

TEST(GlobalMomentum, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "global_momentum{beta=1}|none", kTwenty), ConfigError,
                  "global_momentum: beta must be in [0, 1), got 1");
  TW_EXPECT_THROW(Workers(1, "global_momentum{detach=2}|none", kTwenty), ConfigError,
                  "global_momentum: detach must be in [0, 1], got 2");
}

}  // namespace thinwire::test
