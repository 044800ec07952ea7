// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LocalGroup, GathersInRankOrderManyTimes) {
  test::Watchdog watchdog;
  auto group = local_group(4, 20);
  test::ranks_as_threads(4, [&](Rank r) {
    for (int round = 0; round < 200; ++round) {
      const auto texts =
          group[r]->all_gather("t" + std::to_string(round), std::to_string(10 * r + round));
      for (Rank from = 0; from < 4; ++from)
        ASSERT_EQ(texts[from], std::to_string(10 * from + round));
    }
  });
}

TEST(LocalGroup, OneRankIsAloneAtOnce) {
  auto group = local_group(1, 20, "alone");
  EXPECT_EQ(group[0]->run_id(), "alone");
  EXPECT_THAT(group[0]->all_gather("t", "x"), ::testing::ElementsAre("x"));
}

TEST(LocalGroup, AMissingRankIsNamedAtTheDeadline) {
  test::Watchdog watchdog;
  auto group = local_group(3, 0.3);
  group[2]->started(CallKind::broadcast, {4, 7});
  const auto errors = test::errors_of_ranks(2, [&](Rank r) { group[r]->all_gather("plan", ""); });
  for (const auto& error : errors)
    EXPECT_THAT(test::text_of(error),
                AllOf(StartsWith("CommError"), HasSubstr("'plan'"), HasSubstr("rank 2"),
                      HasSubstr("broadcast, exchange 4, step 7")));
  TW_EXPECT_THROW(group[2]->all_gather("plan", ""), CommError, "rank 2");
}

TEST(LocalGroup, DifferentTopicsEndTheGroup) {
  test::Watchdog watchdog;
  auto group = local_group(2, 20);
  const auto errors = test::errors_of_ranks(
      2, [&](Rank r) { group[r]->all_gather(r == 0 ? "plan" : "parameters", ""); });
  for (const auto& error : errors)
    EXPECT_THAT(test::text_of(error), AllOf(HasSubstr("'plan'"), HasSubstr("'parameters'")));
}

TEST(LocalGroup, TheFirstFaultWinsAndReachesEveryWaiter) {
  test::Watchdog watchdog;
  auto group = local_group(4, 20);
  std::atomic<int> told{0};
  std::vector<std::shared_ptr<void>> tokens;
  for (auto& member : group)
    tokens.push_back(member->on_fault([&](const Fault& fault) {
      EXPECT_EQ(fault.rank, 3);
      ++told;
    }));
  tokens[0].reset();
  const auto errors = test::errors_of_ranks(4, [&](Rank r) {
    if (r < 3) group[r]->all_gather("t", "");
    EXPECT_EQ(group[3]->fail({3, "rank 3 is out of memory"}).rank, 3);
  });
  for (Rank r = 0; r < 3; ++r)
    EXPECT_EQ(test::text_of(errors[r]), "CommError: all_gather of 't': rank 3 is out of memory");
  EXPECT_EQ(group[0]->fail({1, "later"}).text, "rank 3 is out of memory");
  EXPECT_EQ(told, 3);
  int late = 0;
  const auto token = group[1]->on_fault([&](const Fault&) { ++late; });
  EXPECT_EQ(late, 1);
}

TEST(LocalGroup, ARankThatLeftIsMissedAtOnceAndIsNoDeath) {
  test::Watchdog watchdog;
  auto group = local_group(3, 20);
  group[1]->leave();
  group[2].reset();  // leaves too
  EXPECT_TRUE(group[0]->has_left(1));
  EXPECT_TRUE(group[0]->has_left(2));
  EXPECT_FALSE(group[0]->fault());
  TW_EXPECT_THROW(group[0]->all_gather("end", ""), CommError, "has left the group before 'end'");
}

TEST(LocalGroup, AnExceptionThatUnwindsAMemberIsADeath) {
  test::Watchdog watchdog;
  auto group = local_group(3, 20);
  const auto errors = test::errors_of_ranks(3, [&](Rank r) {
    const auto member = std::move(group[r]);
    if (r == 1) throw std::runtime_error("out of paper");
    member->all_gather("t", "");
  });
  EXPECT_EQ(test::text_of(errors[1]), "exception: out of paper");
  for (const Rank r : {0, 2})
    EXPECT_THAT(test::text_of(errors[r]), AllOf(StartsWith("CommError"), HasSubstr("rank 1 died")));
}

TEST(LocalGroup, MustAgreeNamesBothSides) {
  test::Watchdog watchdog;
  auto group = local_group(3, 20);
  test::ranks_as_threads(3, [&](Rank r) { must_agree(*group[r], "seed", "7"); });
  const auto errors =
      test::errors_of_ranks(3, [&](Rank r) { must_agree(*group[r], "seed", r == 2 ? "8" : "7"); });
  for (const auto& error : errors)
    EXPECT_EQ(test::text_of(error),
              "ConfigError: seed differs between ranks: rank 0 has 7, rank 2 has 8");
  EXPECT_FALSE(group[0]->fault());
}

}  // namespace
}  // namespace thinwire
