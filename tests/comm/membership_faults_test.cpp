// SPDX-License-Identifier: Apache-2.0
// Memberships over TCP once all have joined: ranks that leave, die, freeze and disagree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/comm/joining.h"
#include "tests/support/comm_faults.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// args: address, size of the group that is built again (0: none). Prints when told of a fault.
const RegisterScenario kWatch("member.watch", [](const RankContext& c) {
  auto group = join_group(options_at(c.args.at(0), c.rank, c.size, 60, "watch"));
  std::printf("joined\n");
  try {
    for (;;) group->all_gather("watch", "");
  } catch (const CommError& error) {
    std::printf("fault: %s\n", error.what());
    TW_EXPECT_THROW(group->all_gather("later", ""), CommError, error.what() + 25);
  }
  group.reset();
  const int again = std::atoi(c.args.at(1).c_str());
  if (again > 0) {  // rank 0 of the new group is rank 0 of the old one; one rank is missing
    const Rank rank = c.rank > 1 ? c.rank - 1 : c.rank;
    group = join_group(options_at(c.args.at(2), rank, again, 20, "again"));
    must_agree(*group, "life", "good");
    std::printf("rebuilt %d of %d\n", group->rank(), group->size());
  }
  return 0;
});

const RegisterScenario kQuit("member.quit", [](const RankContext& c) -> int {
  const auto group = join_group(options_at(c.args.at(0), c.rank, c.size, 60, "watch"));
  std::printf("joined\n");
  std::fflush(stdout);
  if (c.rank == 1) {
    group->all_gather("watch", "");
    std::_Exit(0);  // in order as the system sees it, without leaving the group
  }
  try {
    for (;;) group->all_gather("watch", "");
  } catch (const CommError& error) {
    std::printf("fault: %s\n", error.what());
  }
  return 0;
});

TEST(Membership, AKilledRankIsSeenAtOnceAndSurvivorsBuildAGroupAgain) {
  Watchdog watchdog;
  RankProcesses ranks(5, "member.watch", {.args = {at(free_port()), "4", at(free_port())}});
  for (Rank r = 0; r < 5; ++r) ASSERT_TRUE(ranks.wait_for(r, "joined")) << ranks.result(r).output;
  const auto start = Clock::now();
  ranks.signal(1, SIGKILL);
  for (const Rank r : {0, 2, 3, 4})
    EXPECT_TRUE(ranks.wait_for(r, "fault: ")) << ranks.result(r).output;
  EXPECT_LT(test::seconds_since(start), 1 + test::late_s());
  for (const Rank r : {0, 2, 3, 4}) {
    const auto& result = ranks.wait(r);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1"), HasSubstr("died"), HasSubstr("rebuilt"),
                                     Not(HasSubstr("Failure"))));
  }
}

TEST(Membership, AnExitWithoutLeavingIsADeath) {
  Watchdog watchdog;
  const auto start = Clock::now();
  const auto results = test::ranks_as_processes(5, "member.quit", {at(free_port())});
  EXPECT_LT(test::seconds_since(start), 5 + test::late_s());
  for (const Rank r : {0, 2, 3, 4})
    EXPECT_THAT(results[r].output, AllOf(HasSubstr("fault: "), HasSubstr("rank 1"),
                                         HasSubstr("died"), HasSubstr("farewell")));
}

TEST(Membership, LeavingIsNoDeath) {
  Watchdog watchdog;
  const auto address = at(free_port());
  std::atomic<bool> gone{false};
  std::atomic<int> looked{0};  // rank 0 ends the group below; both look before that
  test::ranks_as_threads(3, [&](Rank r) {
    auto group = join_group(options_at(address, r, 3, 20));
    group->all_gather("t", "");
    if (r == 2) {
      group->leave();
      group.reset();
      gone = true;
      return;
    }
    while (!gone || !group->has_left(2)) std::this_thread::yield();
    EXPECT_FALSE(group->fault());
    ++looked;
    while (looked < 2) std::this_thread::yield();
    if (r == 0) TW_EXPECT_THROW(group->all_gather("u", ""), CommError, "rank 2 has left");
    if (r == 1) {
      std::atomic<int> told{0};
      const auto token = group->on_fault([&](const Fault& fault) {
        EXPECT_EQ(fault.rank, 2);
        ++told;
      });
      while (told == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST(Membership, AFaultReachesEverybodyWithItsKind) {
  Watchdog watchdog;
  const auto address = at(free_port());
  const auto errors = test::errors_of_ranks(4, [&](Rank r) {
    const auto group = join_group(options_at(address, r, 4, 20));
    group->all_gather("t", "");
    if (r == 3) group->fail({3, "rank 3 has no data", true});
    group->all_gather("u", "");
  });
  for (const auto& error : errors)
    // A rank that is still in the first round when the fault reaches it meets it there.
    EXPECT_THAT(test::text_of(error),
                ::testing::MatchesRegex("ConfigError: all_gather of '[tu]': rank 3 has no data"));
}

/// args: address. Rank 0 says how long rank 1 has been silent, and what it did last.
const RegisterScenario kFreeze("member.freeze", [](const RankContext& c) {
  const auto group = join_group(options_at(c.args.at(0), c.rank, c.size, kT));
  group->started(CallKind::all_reduce, {3, 10 + c.rank});
  group->all_gather("t", "");
  std::printf("joined\n");
  const auto start = Clock::now();
  const auto cpu = std::clock();
  while (c.rank == 0 && group->silent_s(1) < 1.0 && test::seconds_since(start) < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (c.rank == 0) {
    std::printf("silent %.1f, last %s\n", group->silent_s(1), group->last_started(1).c_str());
    while (group->silent_s(1) > 0.6) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::printf("awake\n");
  }
  try {
    group->all_gather("end", "");
  } catch (const CommError& error) {
    std::printf("fault: %s\n", error.what());
  }
  std::printf("cpu %.3f\n", static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
  return 0;
});

TEST(Membership, AFrozenRankIsSilentAndAThawedOneGoesOn) {
  Watchdog watchdog;
  RankProcesses ranks(2, "member.freeze", {.args = {at(free_port())}});
  ASSERT_TRUE(ranks.wait_for(0, "joined") && ranks.wait_for(1, "joined"));
  ranks.signal(1, SIGSTOP);
  EXPECT_TRUE(ranks.wait_for(0, "silent 1.")) << ranks.result(0).output;
  ranks.signal(1, SIGCONT);
  EXPECT_TRUE(ranks.wait_for(0, "awake")) << ranks.result(0).output;
  for (const auto& result : ranks.wait_all()) {
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, Not(HasSubstr("fault")));
  }
  EXPECT_THAT(ranks.result(0).output, HasSubstr("last all_reduce, exchange 3, step 11"));
}

TEST(Membership, AFrozenRankEndsAWaitThatNamesItsSilence) {
  Watchdog watchdog;
  RankProcesses ranks(3, "member.watch_T", {.args = {at(free_port())}});
  for (Rank r = 0; r < 3; ++r) ASSERT_TRUE(ranks.wait_for(r, "joined"));
  ranks.signal(2, SIGSTOP);
  const auto start = Clock::now();
  for (const Rank r : {0, 1}) {
    EXPECT_TRUE(ranks.wait_for(r, "fault: ")) << ranks.result(r).output;
    EXPECT_THAT(ranks.result(r).output,
                AllOf(HasSubstr("rank 2 (last sign of life"), HasSubstr(" s ago")));
    EXPECT_LT(ranks.wait(r).cpu_s, 1.0);
  }
  EXPECT_LT(test::seconds_since(start), kT + 1 + test::late_s());
}

const RegisterScenario kWatchT("member.watch_T", [](const RankContext& c) {
  const auto group = join_group(options_at(c.args.at(0), c.rank, c.size, kT));
  std::printf("joined\n");
  try {
    for (;;) {
      group->all_gather("watch", "");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  } catch (const CommError& error) {
    std::printf("fault: %s\n", error.what());
  }
  return 0;
});

TEST(Membership, ThePortIsFreeAgainAndIdleGroupsCostNothing) {
  Watchdog watchdog;
  const int port = free_port();
  for (int i = 0; i < 5; ++i) {
    test::ranks_as_threads(2, [&](Rank r) {
      const auto group = join_group(options_at(at(port), r, 2, 20));
      group->all_gather("t", "");
    });
  }
  const auto cpu = std::clock();
  test::ranks_as_threads(2, [&](Rank r) {
    const auto group = join_group(options_at(at(port), r, 2, 20));
    std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.1);
}

}  // namespace
}  // namespace thinwire
