// SPDX-License-Identifier: Apache-2.0
// Agreement on what is ready on all ranks: each rule by itself, over threads and over sockets.
#include "thinwire/comm/readiness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <set>

#include "tests/support/comm_faults.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

using Names = std::vector<std::string>;

class ReadinessRules : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int ranks, const std::function<void(Rank, Comm&)>& fn) {
    const auto comms = make_local(ranks, 20, GetParam());
    ranks_as_threads(ranks, [&](Rank rank) { fn(rank, *comms[static_cast<std::size_t>(rank)]); });
  }
  const Watchdog watchdog_{"readiness", 60};
};

void mark_all(Readiness& readiness, const Names& names, const std::string& kind = {}) {
  for (const std::string& name : names) readiness.mark(name, kind);
}

TEST_P(ReadinessRules, OnlyWhatIsReadyOnAllThreeRanks) {
  run(3, [](Rank rank, Comm& comm) {
    Readiness readiness(comm);
    mark_all(readiness, {"0", "1", "2", "3"});
    EXPECT_EQ(readiness.cycle(0), (Names{"0", "1", "2", "3"}));
    EXPECT_EQ(readiness.counts().coordinated, 1);

    const std::vector<Names> ready{{"0", "2", "3"}, {"2", "3"}, {"1", "2"}};
    mark_all(readiness, ready[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(readiness.cycle(1), Names{"2"});

    // Nothing is lost: what others have been waiting for starts as soon as the last has it.
    const std::vector<Names> rest{{"1"}, {"1", "0"}, {"3", "0"}};
    mark_all(readiness, rest[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(readiness.cycle(1), (Names{"0", "1", "3"}));
    EXPECT_EQ(readiness.waiting(), 0);
    EXPECT_EQ(readiness.counts().coordinated, 1) << "known names need no rank 0";
    EXPECT_EQ(readiness.counts().bits, 4 + 4);
  });
}

TEST_P(ReadinessRules, StartsInTheOrderOfBitsWhateverTheOrderOfMarks) {
  run(3, [](Rank rank, Comm& comm) {
    Readiness readiness(comm);
    Names names;
    for (int i = 0; i < 200; ++i) names.push_back("tensor " + std::to_string(i));
    mark_all(readiness, names);
    const Names first = readiness.cycle(0);
    EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 200U);
    if (rank == 1) std::reverse(names.begin(), names.end());
    if (rank == 2) std::rotate(names.begin(), names.begin() + 77, names.end());
    mark_all(readiness, names);
    EXPECT_EQ(readiness.cycle(1), first);
    EXPECT_EQ(readiness.counts().bits, 4 + 200) << "more than one word";
  });
}

TEST_P(ReadinessRules, ANewNameGoesThroughRankZeroOnce) {
  run(3, [](Rank rank, Comm& comm) {
    Readiness readiness(comm);
    mark_all(readiness, {"a", "b"});
    readiness.cycle(0);
    // Each rank announces it in another cycle; each announcement is one cycle through rank 0.
    for (Rank turn = 0; turn < 3; ++turn) {
      mark_all(readiness, {"a"});
      if (rank == turn) readiness.mark("late");
      EXPECT_EQ(readiness.cycle(turn), turn < 2 ? Names{"a"} : (Names{"a", "late"}));
    }
    EXPECT_EQ(readiness.counts().coordinated, 4);
    mark_all(readiness, {"late", "b", "a"});
    EXPECT_EQ(readiness.cycle(3), (Names{"a", "b", "late"}));
    EXPECT_EQ(readiness.counts().coordinated, 4);
  });
}

TEST_P(ReadinessRules, AnEntryWithAnotherKindIsErasedEverywhere) {
  run(3, [](Rank rank, Comm& comm) {
    Readiness readiness(comm);
    mark_all(readiness, {"a", "b", "c"}, "f32 [10]");
    readiness.cycle(0);
    // One rank is first with the new kind; the others follow.
    if (rank == 1) readiness.mark("b", "f16 [10]");
    readiness.mark("c", "f32 [10]");
    EXPECT_EQ(readiness.cycle(1), Names{"c"});
    EXPECT_EQ(readiness.counts().erased, 1);
    if (rank != 1) readiness.mark("b", "f16 [10]");
    readiness.mark("a", "f32 [10]");
    EXPECT_EQ(readiness.cycle(1), (Names{"a", "b"}));
    // The number of before is given again, and the new kind has stayed.
    readiness.mark("b", "f16 [10]");
    EXPECT_EQ(readiness.cycle(2), Names{"b"});
    EXPECT_EQ(readiness.counts().erased, 1);
    EXPECT_EQ(readiness.counts().bits, 4 + 3);
  });
}

TEST_P(ReadinessRules, ChangedOnAllRanksStartsInTheSameCycle) {
  run(2, [](Rank, Comm& comm) {
    Readiness readiness(comm);
    readiness.mark("a", "f32");
    readiness.cycle(0);
    readiness.mark("a", "f16");
    EXPECT_EQ(readiness.cycle(1), Names{"a"});
  });
}

TEST_P(ReadinessRules, KindsThatDifferAreRefusedOnAllRanksAlike) {
  for (const ReadinessBy by : {ReadinessBy::bit_vector, ReadinessBy::coordinator})
    run(3, [&](Rank rank, Comm& comm) {
      Readiness readiness(comm, {.by = by});
      readiness.mark("a", rank == 2 ? "f16 [4]" : "f32 [4]");
      TW_EXPECT_THROW(readiness.cycle(0), ConfigError,
                      "readiness: 'a' must be the same on all ranks, got 'f32 [4]' on rank 0 and "
                      "'f16 [4]' on rank 2");
    });
}

TEST_P(ReadinessRules, OneRankShutsDownAllAfterWhatIsReadyEverywhere) {
  for (const ReadinessBy by : {ReadinessBy::bit_vector, ReadinessBy::coordinator})
    run(3, [&](Rank rank, Comm& comm) {
      Readiness readiness(comm, {.by = by});
      mark_all(readiness, {"a", "b"});
      readiness.cycle(0);
      mark_all(readiness, {"a", "new"});
      if (rank > 0) readiness.mark("b");
      if (rank == 1) readiness.shut_down();
      const Names last = readiness.cycle(1);
      EXPECT_EQ(std::set<std::string>(last.begin(), last.end()),
                (std::set<std::string>{"a", "new"}));
      EXPECT_TRUE(readiness.has_ended());
      EXPECT_EQ(readiness.waiting(), rank > 0 ? 1 : 0);
      TW_EXPECT_THROW(readiness.mark("c"), ConfigError, "it was shut down");
      TW_EXPECT_THROW(readiness.cycle(2), ConfigError, "it was shut down");
    });
}

TEST_P(ReadinessRules, AFullCacheLosesWhatWasUsedLongestAgo) {
  run(3, [](Rank rank, Comm& comm) {
    Readiness readiness(comm, {.capacity = 2});
    mark_all(readiness, {"a", "b"});
    readiness.cycle(0);
    mark_all(readiness, {"a"});
    readiness.cycle(0);
    // "b" waits here with a bit and loses it to "c"; it must start all the same.
    if (rank == 0) readiness.mark("b");
    readiness.mark("c");
    EXPECT_EQ(readiness.cycle(1), Names{"c"});
    EXPECT_EQ(readiness.counts().evicted, 1);
    EXPECT_EQ(readiness.counts().bits, 4 + 2);
    if (rank != 0) readiness.mark("b");
    readiness.mark("c");
    EXPECT_EQ(readiness.cycle(1), (Names{"c", "b"})) << "bits first, then rank 0's list";
    EXPECT_EQ(readiness.counts().evicted, 2) << "now 'a'";
    mark_all(readiness, {"b", "c"});
    const auto before = readiness.counts().coordinated;
    EXPECT_EQ(readiness.cycle(2), (Names{"b", "c"}));
    EXPECT_EQ(readiness.counts().coordinated, before);
  });
}

TEST_P(ReadinessRules, WhatIsMarkedDuringACycleBelongsToTheNext) {
  for (const ReadinessBy by : {ReadinessBy::bit_vector, ReadinessBy::coordinator})
    run(2, [&](Rank, Comm& comm) {
      Readiness readiness(comm, {.by = by});
      mark_all(readiness, {"a", "b"});
      readiness.cycle(0);
      readiness.mark("a");
      readiness.start(1);
      EXPECT_TRUE(readiness.started());
      readiness.mark("b");
      EXPECT_EQ(readiness.finish(), Names{"a"});
      EXPECT_FALSE(readiness.started());
      EXPECT_TRUE(readiness.marked("b"));
      EXPECT_EQ(readiness.cycle(1), Names{"b"});
    });
}

TEST_P(ReadinessRules, ABucketThatOneRankLacksIsReportedWithItsName) {
  for (const ReadinessBy by : {ReadinessBy::bit_vector, ReadinessBy::coordinator}) {
    const auto comms = make_local(4, 20, GetParam());
    std::vector<std::string> texts(4);
    ranks_as_threads(4, [&](Rank rank) {
      Comm& comm = *comms[static_cast<std::size_t>(rank)];
      Readiness readiness(comm, {.by = by, .timeout_s = 0.2});
      mark_all(readiness, {"x", "y", "z"});
      readiness.cycle(6);
      if (rank != 2) readiness.mark("x", {}, 3);
      if (rank == 3) readiness.mark("new", {}, 5);
      readiness.mark("y");
      EXPECT_EQ(readiness.cycle(7), Names{"y"});
      try {
        for (;;) readiness.cycle(7);
      } catch (const CommError& error) {
        texts[static_cast<std::size_t>(rank)] = error.what();
      }
      EXPECT_THROW(readiness.cycle(7), CommError);
      EXPECT_THROW(comm.barrier("after"), CommError) << "the group has ended";
    });
    for (const std::string& text : texts)
      expect_names(text, {"readiness, cycle ", " of step 7",
                          "exchange 3, step 7: 'x' has been ready on ranks 0, 1, 3 for 0.",
                          "and is not on rank 2",
                          "exchange 5, step 7: 'new' has been ready on rank 3 for 0.",
                          "and is not on ranks 0, 1, 2"});
    expect_names(texts[3], {"waiting to start 'x', 'new': "});
  }
}

TEST_P(ReadinessRules, ARankThatIsGoneIsNamedWithWhatWaits) {
  auto comms = make_local(3, 20, GetParam());
  std::vector<std::string> texts(3);
  ranks_as_threads(3, [&](Rank rank) {
    auto& comm = comms[static_cast<std::size_t>(rank)];
    {
      Readiness readiness(*comm);
      mark_all(readiness, {"a", "b", "c", "d", "e"});
      readiness.cycle(0);
      if (rank != 1) {
        mark_all(readiness, {"c", "a", "b", "e", "d"});
        try {
          readiness.cycle(1);
        } catch (const CommError& error) {
          texts[static_cast<std::size_t>(rank)] = error.what();
        }
      }
    }
    if (rank == 1) comm.reset();
  });
  for (const Rank rank : {0, 2})
    expect_names(texts[static_cast<std::size_t>(rank)],
                 {"readiness, cycle 2 of step 1, waiting to start 'c', 'a', 'b' and 2 more: ",
                  "agreement on what is ready", "rank 1"});
}

TEST_P(ReadinessRules, ALateRankIsNamedAtTheDeadline) {
  auto comms = make_local(3, 0.5, GetParam());
  const auto texts = [&] {
    std::vector<std::string> out(3);
    std::barrier<> end(3);
    ranks_as_threads(3, [&](Rank rank) {
      Readiness readiness(*comms[static_cast<std::size_t>(rank)]);
      readiness.mark("a");
      if (rank != 1) {
        try {
          readiness.cycle(4);
        } catch (const CommError& error) {
          out[static_cast<std::size_t>(rank)] = error.what();
        }
      }
      end.arrive_and_wait();
    });
    return out;
  }();
  for (const Rank rank : {0, 2})
    expect_names(texts[static_cast<std::size_t>(rank)], {"waiting to start 'a'", "rank 1"});
}

TEST_P(ReadinessRules, WrongOptionsAreRefusedOnAllRanks) {
  run(2, [](Rank rank, Comm& comm) {
    TW_EXPECT_THROW(Readiness(comm, {.capacity = rank}), ConfigError,
                    "readiness: capacity must be at least 1, got 0 on rank 0");
    TW_EXPECT_THROW(Readiness(comm, {.capacity = 5 + rank}), ConfigError,
                    "readiness: options differ between ranks: rank 0 has bit_vector with capacity "
                    "5, rank 1 has bit_vector with capacity 6");
    TW_EXPECT_THROW(
        Readiness(comm, {.by = rank ? ReadinessBy::coordinator : ReadinessBy::bit_vector}),
        ConfigError, "rank 1 has coordinator with capacity 1024");
    Readiness readiness(comm);
    readiness.mark("a");
    TW_EXPECT_THROW(readiness.mark("a"), ConfigError,
                    "readiness: 'a' is marked already and was not started");
    TW_EXPECT_THROW(readiness.finish(), ConfigError, "no cycle has been started");
    EXPECT_EQ(readiness.cycle(0), Names{"a"});
  });
}

TEST_P(ReadinessRules, OneRankAloneAgreesWithItself) {
  for (const ReadinessBy by : {ReadinessBy::bit_vector, ReadinessBy::coordinator})
    run(1, [&](Rank, Comm& comm) {
      Readiness readiness(comm, {.by = by});
      for (int step = 0; step < 3; ++step) {
        mark_all(readiness, {"b", "a"});
        EXPECT_EQ(readiness.cycle(step), (Names{"b", "a"}));
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Over, ReadinessRules, ::testing::Values("local", "tcp"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace thinwire::test
