// SPDX-License-Identifier: Apache-2.0
// What every registered strategy keeps: one rank is the plain solver, bytes are those of the plan,
// and ranks agree where the strategy has averaged.
#include <algorithm>
#include <numeric>

#include "tests/strategy/problem.h"
#include "thinwire/comm/record.h"
#include "thinwire/strategy/strategy.h"

namespace thinwire::test {
namespace {

struct Case {
  std::string strategy, algorithm;
  int ranks;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const auto& name : strategies().names())
    for (const std::string algorithm : {"", "gather", "shard"})
      for (const int ranks : {1, 2, 4}) out.push_back({name, algorithm, ranks});
  return out;
}

class Strategies : public ::testing::TestWithParam<Case> {
 protected:
  static SyncOptions options(RankWorld& world) {
    SyncOptions out = world.options("wfbp");
    out.strategy = GetParam().strategy;
    out.algorithm = GetParam().algorithm;
    return out;
  }
  /// Steps after which every exchange of the plan has fired equally often.
  static int rounds(const Plan& plan) {
    int steps = 1;
    for (const Exchange& exchange : plan.exchanges) steps = std::lcm(steps, exchange.start.every);
    return steps;
  }
};

}  // namespace

TEST_P(Strategies, OneRankIsThePlainSolver) {
  const Watchdog watchdog;
  if (GetParam().ranks > 1) return;
  sync_ranks(1, [](RankWorld& world) {
    Problem problem(world, options(world));
    for (int step = 1; step <= 6; ++step) EXPECT_EQ(problem.step(), Problem::alone(1, step));
  });
}

TEST_P(Strategies, BytesAreThoseOfThePlan) {
  const Watchdog watchdog;
  sync_ranks(
      GetParam().ranks,
      [](RankWorld& world) {
        Problem problem(world, options(world));
        const Plan& plan = problem.sync().plan();
        const int steps = rounds(plan);
        const auto log = call_log(world.comm);
        log->clear();
        for (int step = 0; step < 2 * steps; ++step) problem.step();
        std::vector<Bytes> sent(plan.exchanges.size());
        for (const CallRecord& call : log->calls()) {
          ASSERT_GE(call.id.exchange, 0) << "a step calls nothing that is not in the plan";
          // The second round of shard carries sums, from the owners.
          const bool sums = GetParam().algorithm == "shard" && call.id.part > 0;
          if (!sums) sent[static_cast<std::size_t>(call.id.exchange)] += call.payload_bytes;
        }
        for (const Exchange& exchange : plan.exchanges)
          EXPECT_EQ(
              sent[static_cast<std::size_t>(exchange.id)],
              world.comm.size() == 1 ? 0 : exchange.payload * 2 * steps / exchange.start.every)
              << "exchange " << exchange.id;
      },
      2, "record|");
}

TEST_P(Strategies, RanksAgreeAfterEachRound) {
  const Watchdog watchdog;
  sync_ranks(GetParam().ranks, [](RankWorld& world) {
    Problem problem(world, options(world));
    const int steps = rounds(problem.sync().plan());
    for (int round = 0; round < 3; ++round) {
      for (int step = 0; step < steps; ++step) problem.step();
      const auto mine = problem.values();
      must_agree(*world.comm.membership(), "parameters",
                 std::to_string(mine[0]) + " " + std::to_string(mine[1]));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Strategies, ::testing::ValuesIn(cases()), [](const auto& info) {
  const Case& one = info.param;
  return one.strategy + "_" + (one.algorithm.empty() ? "chosen" : one.algorithm) + "_" +
         std::to_string(one.ranks);
});

}  // namespace thinwire::test
