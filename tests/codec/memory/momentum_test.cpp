// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include "tests/codec/memory/workers.h"

#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {
const std::vector<TensorDesc> kThree{{"w", DType::f64, {3}}};
at::Tensor gradient(int t) { return at::sin(at::arange(3, at::kDouble) + t); }
}  // namespace

TEST(Momentum, IsThatOfSgdWhereEverythingIsSent) {
  for (const bool nesterov : {false, true}) {
    Workers workers(1, nesterov ? "momentum{nesterov=yes}|none" : "momentum{beta=0.9}|none",
                    kThree);
    at::Tensor buffer = at::zeros({3}, at::kDouble);
    for (int t = 0; t < 50; ++t) {
      const at::Tensor g = gradient(t), out = workers.step({g});
      buffer = g + buffer * 0.9;
      EXPECT_LT((out - (nesterov ? g + buffer * 0.9 : buffer)).abs().max().item<double>(), 1e-14);
    }
  }
}

TEST(Momentum, StandsBeforeErrorFeedback) {
  Workers workers(2, "momentum{beta=0.5}|ef|topk{count=1}", kThree);
  at::Tensor momentum = at::zeros({3}, at::kDouble), made = momentum, got = momentum;
  for (int t = 0; t < 20; ++t) {
    momentum = gradient(t) + momentum * 0.5;
    made = made + momentum;
    got = got + workers.step({gradient(t), gradient(t)});
  }
  EXPECT_LT((got + workers.kept(0, "residual", 1) - made).abs().max().item<double>(), 1e-13);
  EXPECT_TRUE(workers.equal());
}

TEST(Momentum, TakesAStepBack) {
  EXPECT_LT(changed_by_a_step_back("momentum|topk{count=2}"), 1e-14);
  EXPECT_LT(changed_by_a_step_back("momentum{nesterov=yes}|ef|topk{count=2}"), 1e-14);
}

TEST(Momentum, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "momentum{beta=1}|none", kThree), ConfigError,
                  "momentum: beta must be in [0, 1), got 1");
}

}  // namespace thinwire::test
