// SPDX-License-Identifier: Apache-2.0
// KF-52: what checks and simulator accept the runtime carries out, and what they refuse it refuses,
// in the same words.
#include "tests/plan/random_plans.h"
#include "tests/train/sync_ranks.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/simulate.h"

namespace thinwire::test {
namespace {

std::vector<NamedTensor> parameters_of(const Plan& plan) {
  std::vector<NamedTensor> out;
  for (const TensorDesc& desc : plan.tensors)
    out.push_back({desc.name, parameter(at::ones(desc.shape))});
  return out;
}

/// Three steps of a model with the plan's tensors, whose gradients are 1 on every rank; what rank 0
/// threw.
std::string ran(const Plan& plan, int ranks) {
  const std::string text = to_json(plan);
  const auto errors = sync_errors(ranks, [&](RankWorld& world) {
    SyncOptions options = world.options();
    options.plan = text;
    auto parameters = parameters_of(plan);
    GradientSync sync(parameters, {}, world.comm, options);
    for (int step = 0; step < 3; ++step) {
      backward(sync, [&] {
        at::Tensor sum = at::zeros({});
        for (const NamedTensor& one : parameters) sum = sum + one.tensor.sum();
        return sum;
      });
      for (const NamedTensor& one : parameters) {
        ASSERT_TRUE(one.tensor.grad().defined()) << one.name;
        EXPECT_TRUE(at::isfinite(one.tensor.grad()).all().item<bool>()) << one.name;
      }
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error.empty(), errors[0].empty()) << error;
  constexpr std::string_view kKind = "ConfigError: ";
  return errors[0].starts_with(kKind) ? errors[0].substr(kKind.size()) : errors[0];
}

TEST(PlanVerdicts, KF52_CheckSimulatorAndRuntimeAgreeOn200Plans) {
  const Watchdog watchdog;
  Rng rng({.seed = 0, .exchange = 0, .step = 0, .rank = 0});
  for (int i = 0; i < 200; ++i) {
    const RandomPlan one = random_plan(rng);
    const auto checked = refusal([&] { validate(one.plan, one.ranks); });
    const auto simulated = refusal([&] { simulate(one.plan, one.profile, one.cluster); });
    EXPECT_EQ(checked, simulated) << i << ": " << one.wrong;
    EXPECT_EQ(checked, ran(one.plan, one.ranks)) << i << ": " << one.wrong;
    EXPECT_EQ(checked.empty(), one.sound) << i << ": " << one.wrong;
  }
}

TEST(PlanVerdicts, KF52_ExchangeRankAndWorldSizeInTheSameWords) {
  const Watchdog watchdog;
  const std::vector<TensorDesc> tensors{{"w", DType::f32, {4}}};
  Plan plan = data_parallel_plan(tensors, {{{{0, 0, 2}}}, {{{0, 2, 4}}}}, 3, {});
  plan.groups.push_back({.ranks = {0, 3}});
  plan.exchanges[1].group = 1;
  const std::string words =
      "exchange 1: its group 1 has rank 3, but the world size is 3 (ranks 0 to 2)";
  Cluster cluster{.ranks_per_level = {3}};
  cluster.links["all_reduce"] = {{.latency_s = 1e-4, .bytes_per_s = 1e6}};
  const Profile profile{.params = tensors, .forward_s = {1}, .backward_s = {1}};
  EXPECT_EQ(refusal([&] { validate(plan, 3); }), words);
  EXPECT_EQ(refusal([&] { simulate(plan, profile, cluster); }), words);
  EXPECT_EQ(ran(plan, 3), words);
}

// (iii): each grouping, 1 to 4 ranks, three profiles of a few tensors.
TEST(PlanVerdicts, KF52_EveryPlannedPlanRuns) {
  const Watchdog watchdog;
  Rng rng({.seed = 2, .exchange = 0, .step = 0, .rank = 0});
  for (int i = 0; i < 3; ++i) {
    const Profile profile = random_plan(rng).profile;
    for (int ranks = 1; ranks <= 4; ++ranks) {
      Cluster cluster{.ranks_per_level = {ranks}};
      cluster.links["all_reduce"] = {{.latency_s = 1e-4, .bytes_per_s = 1e5}};
      for (const auto& name : groupings().names()) {
        const Grouped grouped =
            make_grouped(parse_spec(name), {.profile = profile, .cluster = cluster});
        const Plan plan = data_parallel_plan(profile.params, grouped.grouping, ranks,
                                             parse_chain("none"), grouped.every);
        EXPECT_EQ(ran(plan, ranks), "") << name << " on " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace thinwire::test
