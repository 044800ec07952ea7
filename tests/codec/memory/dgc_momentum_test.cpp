// SPDX-License-Identifier: Apache-2.0
// Lin et al. 2018: closed forms.
#include <gtest/gtest.h>
#include "tests/codec/memory/workers.h"

#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

const std::vector<TensorDesc> kEight{{"w", DType::f64, {6}}, {"b", DType::f64, {2}}};
at::Tensor dgc_gradient(int t) { return at::sin(at::arange(8, at::kDouble) * 1.7 + t); }

}  // namespace

TEST(DgcMomentum, WithMaskingAndEverythingSentIsSgdWithoutMomentum) {
  for (const std::string codec : {"topk{ratio=1}", "none"}) {
    Workers workers(1, "dgc_momentum|" + codec, kEight);
    for (int t = 0; t < 30; ++t)
      EXPECT_TRUE(at::equal(workers.step({dgc_gradient(t)}), dgc_gradient(t))) << codec << " " << t;
  }
}

TEST(DgcMomentum, WithoutMaskingAndEverythingSentIsSgdWithMomentum) {
  Workers plain(1, "dgc_momentum{masking=no}|topk{ratio=1}", kEight);
  Workers ahead(1, "dgc_momentum{masking=no,nesterov=yes}|none", kEight);
  at::Tensor buffer = at::zeros({8}, at::kDouble);
  for (int t = 0; t < 30; ++t) {
    const at::Tensor g = dgc_gradient(t);
    buffer = g + buffer * 0.9;
    EXPECT_LT((plain.step({g}) - buffer).abs().max().item<double>(), 1e-14) << t;
    EXPECT_LT((ahead.step({g}) - (g + buffer * 0.9)).abs().max().item<double>(), 1e-13) << t;
  }
}

TEST(DgcMomentum, MasksTheMomentumOfWhatWasSent) {
  Workers workers(1, "dgc_momentum{beta=0.5}|topk{count=2}", kEight);
  const at::Tensor g = at::arange(8, at::kDouble) + 1;
  workers.step({g});
  at::Tensor left = g.clone();
  left.narrow(0, 6, 2).zero_();
  EXPECT_TRUE(at::equal(workers.kept(0, "momentum"), left));
  EXPECT_TRUE(at::equal(workers.kept(0, "sum"), left));
  workers.step({g});  // momentum 1.5 of those left, their sum 2.5
  EXPECT_EQ(workers.last_own[0][5].item<double>(), 15);
  EXPECT_EQ(workers.last_own[0][4].item<double>(), 12.5);
  EXPECT_EQ(workers.kept(0, "momentum")[5].item<double>(), 0);
  EXPECT_EQ(workers.kept(0, "momentum")[7].item<double>(), 8) << "begins anew after it was sent";
}

TEST(DgcMomentum, LosesNothingOfWhatItAccumulates) {
  Workers workers(1, "dgc_momentum{beta=0.5}|topk{count=3}", kEight);
  at::Tensor momentum = at::zeros({8}, at::kDouble), made = momentum, sent = momentum;
  for (int t = 0; t < 40; ++t) {
    const at::Tensor g =
        at::floor(dgc_gradient(t) * 64);  // halves of integers add without rounding
    momentum = workers.step({g}).defined() ? g + momentum * 0.5 : momentum;
    made = made + momentum;
    sent = sent + workers.last_own[0];
    momentum = workers.kept(0, "momentum");
  }
  EXPECT_LT((sent + workers.kept(0, "sum") - made).abs().max().item<double>(), 1e-9);
}

TEST(DgcMomentum, ClipsEachTensorByTheRootOfTheRanks) {
  Workers workers(4, "dgc_momentum{clip=4}|none", kEight);  // norm 2 a rank
  at::Tensor g = at::zeros({8}, at::kDouble);
  g[0] = 3;
  g[1] = 4;
  g[6] = 1;
  const at::Tensor out = workers.step({g, g, g, g});
  EXPECT_NEAR(out[0].item<double>(), 1.2, 1e-12);
  EXPECT_NEAR(out[1].item<double>(), 1.6, 1e-12);
  EXPECT_EQ(out[6].item<double>(), 1) << "a tensor of its own";
}

TEST(DgcMomentum, TakesAStepBack) {
  for (const std::string options : {"", "{masking=no}", "{nesterov=yes}", "{clip=0.5}"})
    EXPECT_LT(changed_by_a_step_back("dgc_momentum" + options + "|topk{count=2}"), 1e-14)
        << options;
  EXPECT_LT(changed_by_a_step_back("dgc_momentum|sign"), 1e-14);
}

TEST(DgcMomentum, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "dgc_momentum{clip=-1}|none", kEight), ConfigError,
                  "dgc_momentum: clip must be at least 0, got -1");
}

}  // namespace thinwire::test
