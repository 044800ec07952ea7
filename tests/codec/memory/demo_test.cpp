// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include "tests/codec/memory/workers.h"

#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {
const std::vector<TensorDesc> kFive{{"w", DType::f64, {5}}};
at::Tensor gradient(int t) { return at::sin(at::arange(5, at::kDouble) + t); }
}  // namespace

TEST(Demo, IsSignSgdWithoutDecayAndWithEverythingSent) {
  Workers workers(1, "demo{decay=0}|none", kFive);
  for (int t = 0; t < 20; ++t)
    EXPECT_TRUE(at::equal(workers.step({gradient(t)}), at::sign(gradient(t))));
}

TEST(Demo, TheSignOfNothingIsZero) {
  Workers workers(2, "demo|topk{count=1}", kFive);
  const at::Tensor out = workers.step({gradient(0), gradient(0)});
  EXPECT_EQ(out.abs().sum().item<double>(), 1) << "one coordinate has been sent";
}

TEST(Demo, WhatIsSentAndLeftAreTheDecayedMomentumAndTheGradient) {
  Workers workers(1, "demo|topk{count=2}", kFive);
  at::Tensor left = at::zeros({5}, at::kDouble);
  for (int t = 0; t < 30; ++t) {
    const at::Tensor made = left * 0.999 + gradient(t);
    workers.step({gradient(t)});
    left = workers.kept(0, "momentum");
    EXPECT_LT((workers.last_own[0] + left - made).abs().max().item<double>(), 1e-14);
  }
}

TEST(Demo, TakesAStepBack) { EXPECT_LT(changed_by_a_step_back("demo|topk{count=2}"), 1e-14); }

TEST(Demo, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "demo{decay=2}|none", kFive), ConfigError,
                  "demo: decay must be in [0, 1], got 2");
}

}  // namespace thinwire::test
