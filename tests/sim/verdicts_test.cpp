// SPDX-License-Identifier: Apache-2.0
// KF-52 as far as it goes without a runtime (tests/train/verdicts_test.cpp has the rest): the
// simulator accepts what the check of a plan accepts, and nothing else.
#include <gtest/gtest.h>

#include "tests/plan/random_plans.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/plan/known_models.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/simulate.h"

namespace thinwire::test {
namespace {

TEST(KnownFailures, KF52_SimulatorAndCheckAgreeOn200Plans) {
  Rng rng({.seed = 0, .exchange = 0, .step = 0, .rank = 0});
  int sound = 0;
  for (int i = 0; i < 200; ++i) {
    const RandomPlan one = random_plan(rng);
    const auto checked = refusal([&] { validate(one.plan, one.ranks); });
    const auto simulated =
        refusal([&] { simulate(one.plan, one.profile, one.cluster, {.steps = 3}); });
    EXPECT_EQ(checked, simulated) << i << ": " << one.wrong;
    EXPECT_EQ(checked.empty(), one.sound) << i << ": " << one.wrong << ": " << checked;
    sound += one.sound;
  }
  EXPECT_GT(sound, 70);
  EXPECT_LT(sound, 130);
}

TEST(KnownFailures, KF52_EveryFaultIsRefusedByBoth) {
  Rng rng({.seed = 1, .exchange = 0, .step = 0, .rank = 0});
  for (const Fault& fault : plan_faults()) {
    RandomPlan one = random_plan(rng);
    while (!one.sound) one = random_plan(rng);
    fault.make(one.plan, one.ranks);
    const auto checked = refusal([&] { validate(one.plan, one.ranks); });
    EXPECT_FALSE(checked.empty()) << fault.name;
    EXPECT_EQ(checked, refusal([&] { simulate(one.plan, one.profile, one.cluster); }))
        << fault.name;
  }
}

// (iii): each grouping, 1 to 4 ranks, three profiles.
TEST(KnownFailures, KF52_EveryPlannedPlanSimulates) {
  const auto stored = [](const std::string& name) {
    return profile_from_json(read_text(TW_SOURCE "/tests/plan/profiles/" + name), name);
  };
  const std::vector<Profile> profiles{stored("mlp.json"), stored("resnet18.json"),
                                      shared_out(known_model("googlenet"), 0.1, 0.2)};
  int planned = 0;
  for (const Profile& profile : profiles)
    for (int ranks = 1; ranks <= 4; ++ranks) {
      Cluster cluster{.ranks_per_level = {ranks}};
      cluster.links["all_reduce"] = {{.latency_s = 1e-4, .bytes_per_s = 1e8}};
      for (const auto& name : groupings().names()) {
        const Grouped grouped =
            make_grouped(parse_spec(name), {.profile = profile, .cluster = cluster});
        const Plan plan = data_parallel_plan(profile.params, grouped.grouping, ranks,
                                             parse_chain("none"), grouped.every);
        EXPECT_EQ(refusal([&] { validate(plan, ranks); }), "") << name;
        const auto steps = step_seconds(simulate(plan, profile, cluster, {.steps = 2}));
        EXPECT_GT(steps.back(), 0) << name;
        ++planned;
      }
    }
  EXPECT_GE(planned, 3 * 4 * 8);
}

}  // namespace
}  // namespace thinwire::test
