// SPDX-License-Identifier: Apache-2.0
// Richtarik et al. 2021, and the estimates of neighbours of Koloskova et al. 2019.
#include <gtest/gtest.h>
#include "tests/codec/memory/workers.h"

#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

const std::vector<TensorDesc> kThree{{"w", DType::f64, {3}}};

at::Tensor three(double a, double b, double c) {
  return at::tensor({a, b, c}, at::TensorOptions(at::kDouble));
}

/// f_i(x) = <a_i, x>^2 + |x|^2 / 4.
std::vector<at::Tensor> gradients(const at::Tensor& x) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& a : {three(-3, 2, 2), three(2, -3, 2), three(2, 2, -3)})
    out.push_back(a * (2 * (a * x).sum()) + x / 2);
  return out;
}

at::Tensor mean_of(const std::vector<at::Tensor>& all) {
  at::Tensor sum = at::zeros_like(all[0]);
  for (const at::Tensor& one : all) sum += one;
  return sum / static_cast<double>(all.size());
}

double length_after(const std::string& form, double gamma, int steps) {
  Workers workers(3, form, kThree);
  at::Tensor x = three(1, 1, 1);
  for (int t = 0; t < steps; ++t) x = x - workers.step(gradients(x)) * gamma;
  EXPECT_TRUE(workers.equal());
  return x.norm().item<double>();
}

}  // namespace

TEST(Difference, ConvergesWhereTheCodecAloneRunsAway) {
  for (const auto& [gamma, steps] : {std::pair{0.01, 1520}, {0.03, 516}}) {
    Workers plain(3, "topk{count=1}", kThree);
    at::Tensor x = three(1, 1, 1);
    for (int t = 0; t <= steps; ++t) {
      const at::Tensor next = x - plain.step(gradients(x)) * gamma;
      if (t < 3) {
        EXPECT_NEAR((next / x)[0].item<double>(), 1 + 11 * gamma / 6, 1e-12);
      }
      x = next;
      EXPECT_EQ(x[0].item<double>() > 1e12, t >= steps) << "passes 1e12 at step " << steps;
    }
  }
  EXPECT_LT(length_after("ef|topk{count=1}", 0.01, 3000), 1e-14);
  EXPECT_LT(length_after("difference|topk{count=1}", 0.01, 3000), 1e-14);
}

TEST(Difference, IsGradientDescentWhereEverythingIsSent) {
  Workers workers(3, "difference|none", kThree);
  at::Tensor x = three(1, 2, 3);
  for (int t = 0; t < 50; ++t) {
    const auto g = gradients(x);
    const at::Tensor out = workers.step(g);
    EXPECT_LT((out - mean_of(g)).abs().max().item<double>(), 1e-12);
    x = x - out * 0.01;
  }
}

TEST(Difference, TheCombinedEstimateIsTheMeanOfTheOwn) {
  Workers workers(3, "difference|sign", kThree);
  at::Tensor x = three(1, 2, 3);
  for (int t = 0; t < 50; ++t) {
    const at::Tensor out = workers.step(gradients(x));
    at::Tensor mean = at::zeros({3}, at::kDouble);
    for (int r = 0; r < 3; ++r) mean += workers.kept(r, "own") / 3;
    ASSERT_LT((out - mean).abs().max().item<double>(), 1e-12);
    EXPECT_TRUE(at::equal(out, workers.kept(0, "combined")));
    x = x - out * 0.01;
  }
}

TEST(Difference, SmoothsWhereAsked) {
  Workers workers(1, "difference{eta=0.1}|none", kThree);
  at::Tensor v = at::zeros({3}, at::kDouble);
  for (int t = 0; t < 20; ++t) {
    const at::Tensor g = three(t, 1, -t);
    v = v * 0.9 + g * 0.1;
    EXPECT_LT((workers.step({g}) - v).abs().max().item<double>(), 1e-12);
  }
}

TEST(Difference, KeepsAnEstimateOfEachNeighbour) {
  const auto make = [] {
    return memories().find("difference").make(parse_spec("difference"), kThree);
  };
  const auto memory = make();
  const Slot slot{.ranks = 3};
  at::Tensor x = three(1, 2, 3);
  memory->before(x, slot);
  memory->sent(x, Sent(), slot);
  at::Tensor value = three(1, 0, 0);
  memory->received(value, 2, slot);
  EXPECT_TRUE(at::equal(value, three(1, 0, 0)));
  value = three(0, 0, 5);
  memory->received(value, 1, slot);
  value = three(0, 1, 0);
  memory->received(value, 2, slot);
  EXPECT_TRUE(at::equal(value, three(1, 1, 0)));
  struct Load : StateOf {
    std::map<std::string, at::Tensor> from;
    void tensor(const std::string& name, at::Tensor& one) override {
      if (from.contains(name)) one = from.at(name).clone();
    }
    void integer(const std::string& name, std::int64_t& one) override {
      one = from.at(name).item<std::int64_t>();
    }
  } load;
  StateOf saved;
  memory->visit_state(saved);
  load.from = saved.found;
  EXPECT_TRUE(load.from.contains("rank2"));
  const auto second = make();
  second->visit_state(load);
  value = three(0, 0, 0);
  second->received(value, 1, slot);
  EXPECT_TRUE(at::equal(value, three(0, 0, 5)));
}

TEST(Difference, TakesAStepBack) {
  EXPECT_LT(changed_by_a_step_back("difference|topk{count=2}"), 1e-14);
  EXPECT_LT(changed_by_a_step_back("difference{eta=0.25}|topk{count=2}"), 1e-14);
}

TEST(Difference, RefusesOptions) {
  TW_EXPECT_THROW(Workers(1, "difference{eta=0}|none", kThree), ConfigError,
                  "difference: eta must be in (0, 1], got 0");
}

}  // namespace thinwire::test
