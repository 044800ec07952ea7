// SPDX-License-Identifier: Apache-2.0
#include "tests/strategy/problem.h"
#include "thinwire/strategy/strategy.h"

namespace thinwire::test {

TEST(SyncSgd, ExactTrajectory) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto options = world.options("wfbp");
    options.strategy = "sync_sgd";
    Problem problem(world, options);
    const std::vector<std::vector<double>> expected{{1, 1}, {1.5, 1.5}, {1.75, 1.75}};
    for (const auto& values : expected) EXPECT_EQ(problem.step(), values);
  });
}

TEST(SyncSgd, DeclaresWhatThePlanOfTheToolHas) {
  const std::vector<TensorDesc> tensors{{"w", DType::f32, {2, 3}}, {"b", DType::f32, {3}}};
  const Grouping grouping{{{{1, 0, 3}}}, {{{0, 0, 6}}}};
  PlanBuilder builder({.tensors = tensors, .grouping = grouping, .ranks = 3});
  make_strategy("sync_sgd")->declare(builder, {});
  EXPECT_EQ(builder.plan(), data_parallel_plan(tensors, grouping, 3, {}));
}

TEST(SyncSgd, RefusesOptionsAndUnknownNames) {
  TW_EXPECT_THROW(make_strategy("sync_sgd{period=2}"), ConfigError, "period");
  TW_EXPECT_THROW(make_strategy("sync_sdg"), ConfigError, "'sync_sgd'");
}

}  // namespace thinwire::test
