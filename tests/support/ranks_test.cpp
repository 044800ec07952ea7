// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/either_way.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

using ::testing::HasSubstr;

const RegisterScenario kSpeak("support.speak", [](const RankContext& c) {
  std::printf("rank %d of %d: %s\n", c.rank, c.size, c.args.at(c.rank).c_str());
  return 10 + c.rank;
});
const RegisterScenario kThrow("support.throw", [](const RankContext& c) -> int {
  if (c.rank == 0) throw ConfigError("wrong");
  throw CommError("broken");
});
const RegisterScenario kSleep("support.sleep", [](const RankContext&) {
  std::printf("ready\n");
  ::pause();
  return 0;
});

TEST(RankProcesses, ReturnExitCodesAndOutput) {
  Watchdog watchdog;
  const auto results = ranks_as_processes(2, "support.speak", {"hello", "good bye"});
  EXPECT_EQ(results[0].output, "rank 0 of 2: hello\n");
  EXPECT_EQ(results[1].output, "rank 1 of 2: good bye\n");
  EXPECT_EQ(results[0].exit_code, 10);
  EXPECT_EQ(results[1].exit_code, 11);
  EXPECT_GT(results[0].wall_s, 0);
}

TEST(RankProcesses, PrintExceptions) {
  Watchdog watchdog;
  const auto results = ranks_as_processes(2, "support.throw");
  EXPECT_EQ(results[0].output, "ConfigError: wrong\n");
  EXPECT_EQ(results[0].exit_code, 2);
  EXPECT_EQ(results[1].output, "CommError: broken\n");
  EXPECT_EQ(results[1].exit_code, 1);
}

TEST(RankProcesses, TakeSignalsAndAreKilledAtTheEnd) {
  Watchdog watchdog;
  pid_t left = 0;
  {
    RankProcesses ranks(2, "support.sleep");
    ASSERT_TRUE(ranks.wait_for(0, "ready\n"));
    ranks.signal(0, SIGTERM);
    EXPECT_EQ(ranks.wait(0).signal, SIGTERM);
    EXPECT_FALSE(ranks.wait_for(1, "never", 0.05));
    left = ranks.pid(1);
  }
  EXPECT_EQ(::kill(left, 0), -1);
}

TEST(EitherWay, GivesTheTextOfEachRank) {
  Watchdog watchdog;
  for (const auto how : {RanksAre::threads, RanksAre::processes})
    for (const std::string word : {"first", "second"}) {
      const auto texts = run_ranks(how, 2, [&](Comm& world) {
        EXPECT_EQ(world.size(), 2);
        world.barrier("both");
        if (world.rank() == 1) throw ConfigError("the " + word + " call");
      });
      ASSERT_EQ(texts.size(), 2u);
      EXPECT_EQ(texts[0], "");
      EXPECT_EQ(texts[1], "ConfigError: the " + word + " call");
    }
}

}  // namespace
}  // namespace thinwire::test
