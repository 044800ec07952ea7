// SPDX-License-Identifier: Apache-2.0
// Random orders, new names, changed kinds, small caches and a shut-down by some rank: the safety of
// the agreement, and that bits decide what rank 0 would. A script is drawn first; what each cycle
// must start is known from it: what all ranks have produced by then.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/readiness.h"
#include "thinwire/core/rng.h"

namespace thinwire::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 12;  // ten times as slow
#else
constexpr std::uint64_t kSeeds = 60;
#endif

using Names = std::vector<std::string>;
struct Mark {
  std::string name, kind;
};

struct Script {
  int ranks = 0;
  std::vector<std::vector<std::vector<Mark>>> marks;  ///< by cycle and rank
  std::vector<std::set<std::string>> starts;          ///< by cycle
  Rank ends = 0;                                      ///< asks for the end in the last cycle
};

/// Things whose name or kind changes now and then once they have started.
class Draft {
 public:
  Draft(std::uint64_t seed, int ranks) : rng_({.seed = seed}), ranks_(ranks) {
    things_.resize(1 + rng_.below(12));
    for (std::size_t i = 0; i < things_.size(); ++i) renew(i, true);
  }

  Script script(int cycles) {
    Script out{.ranks = ranks_,
               .ends = static_cast<Rank>(rng_.below(static_cast<unsigned>(ranks_)))};
    for (int cycle = 0; cycle < cycles; ++cycle) {
      auto& by_rank = out.marks.emplace_back(static_cast<std::size_t>(ranks_));
      for (auto& marks : by_rank) produce(marks, static_cast<std::size_t>(&marks - by_rank.data()));
      auto& starts = out.starts.emplace_back();
      for (std::size_t i = 0; i < things_.size(); ++i) {
        const auto& on = things_[i].on;
        if (std::find(on.begin(), on.end(), false) != on.end()) continue;
        starts.insert(things_[i].mark.name);
        renew(i, rng_.below(8) == 0);
      }
    }
    return out;
  }

 private:
  struct Thing {
    Mark mark;
    std::vector<bool> on;  ///< ranks that have produced it
  };

  void produce(std::vector<Mark>& marks, std::size_t rank) {
    const auto eagerness = 1 + rng_.below(4);
    for (Thing& thing : things_) {
      if (thing.on[rank] || rng_.below(4) >= eagerness) continue;
      thing.on[rank] = true;
      marks.push_back(thing.mark);
    }
    for (std::size_t i = marks.size(); i > 1; --i) std::swap(marks[i - 1], marks[rng_.below(i)]);
  }

  void renew(std::size_t i, bool new_name) {
    Thing& thing = things_[i];
    thing.on.assign(static_cast<std::size_t>(ranks_), false);
    if (new_name) thing.mark.name = "thing " + std::to_string(next_++);
    if (new_name || rng_.below(5) == 0) thing.mark.kind = "kind " + std::to_string(rng_.below(3));
  }

  Rng rng_;
  const int ranks_;
  std::vector<Thing> things_;
  int next_ = 0;
};

/// What one rank was told, cycle by cycle.
struct Told {
  std::vector<Names> lists;
  std::vector<std::uint64_t> digests;
};

Told play(const Script& script, Comm& comm, const ReadinessOptions& options) {
  Told out;
  Readiness readiness(comm, options);
  std::set<std::string> here;
  const std::size_t cycles = script.marks.size();
  for (std::size_t cycle = 0; cycle < cycles; ++cycle) {
    for (const Mark& mark : script.marks[cycle][static_cast<std::size_t>(comm.rank())]) {
      readiness.mark(mark.name, mark.kind);
      here.insert(mark.name);
    }
    if (cycle + 1 == cycles && comm.rank() == script.ends) readiness.shut_down();
    out.lists.push_back(readiness.cycle(static_cast<std::int64_t>(cycle)));
    out.digests.push_back(readiness.digest());
    for (const std::string& name : out.lists.back())
      EXPECT_EQ(here.erase(name), 1U) << name << " was started before this rank had produced it";
    EXPECT_EQ(readiness.has_ended(), cycle + 1 == cycles);
  }
  EXPECT_EQ(readiness.waiting(), static_cast<int>(here.size()));
  return out;
}

void check(const Script& script, const std::string& transport, const ReadinessOptions& options) {
  const auto comms = make_local(script.ranks, 20, transport);
  std::vector<Told> told(static_cast<std::size_t>(script.ranks));
  ranks_as_threads(script.ranks, [&](Rank rank) {
    const auto r = static_cast<std::size_t>(rank);
    told[r] = play(script, *comms[r], options);
  });
  for (const Told& one : told) {
    EXPECT_EQ(one.lists, told[0].lists) << "not the same set and order on all ranks";
    EXPECT_EQ(one.digests, told[0].digests);
  }
  for (std::size_t cycle = 0; cycle < script.starts.size(); ++cycle) {
    const Names& list = told[0].lists[cycle];
    EXPECT_EQ(std::set<std::string>(list.begin(), list.end()), script.starts[cycle])
        << "cycle " << cycle << ": not what all ranks had produced by then";
  }
}

class ReadinessRandom : public ::testing::TestWithParam<std::string> {};

TEST_P(ReadinessRandom, StartsWhatRankZeroWouldOnAllRanksAlike) {
  const Watchdog watchdog("random readiness", 240);
  const std::uint64_t seeds = GetParam() == "local" ? kSeeds : kSeeds / 4;
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed)
    for (const int ranks : {2, 3, 5}) {
      const Script script = Draft(seed, ranks).script(30);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(ranks));
      check(script, GetParam(), {.by = ReadinessBy::coordinator});
      for (const int capacity : {1, 4, 1024}) check(script, GetParam(), {.capacity = capacity});
    }
}

INSTANTIATE_TEST_SUITE_P(Over, ReadinessRandom, ::testing::Values("local", "tcp"),
                         [](const auto& each) { return each.param; });

/// Ranks run ahead of each other: cycles overlap with what they start, in their own time.
TEST(ReadinessRandomTimes, CyclesInTwoHalvesAgreeToo) {
  const Watchdog watchdog("readiness in two halves", 120);
  constexpr int kRanks = 4, kThings = 30;
  const auto comms = make_local(kRanks, 20, "tcp");
  std::vector<Names> lists(kRanks);
  ranks_as_threads(kRanks, [&](Rank rank) {
    const auto r = static_cast<std::size_t>(rank);
    Readiness readiness(*comms[r]);
    Rng rng({.seed = 7, .rank = rank});
    for (int step = 0; step < 20; ++step) {
      std::vector<int> order(kThings);
      for (int i = 0; i < kThings; ++i) order[static_cast<std::size_t>(i)] = i;
      for (std::size_t i = kThings; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      int left = kThings;
      const auto take = [&] {
        for (const std::string& name : readiness.finish()) {
          lists[r].push_back(name);
          --left;
        }
      };
      for (const int i : order) {
        readiness.mark("thing " + std::to_string(i));
        if (readiness.started() && readiness.arrived()) take();
        if (!readiness.started() && left > 0) readiness.start(step);
      }
      while (left > 0) {
        if (!readiness.started()) readiness.start(step);
        take();
      }
    }
  });
  EXPECT_EQ(lists[0].size(), 20U * kThings);
  for (const Names& list : lists) EXPECT_EQ(list, lists[0]);
}

}  // namespace
}  // namespace thinwire::test
