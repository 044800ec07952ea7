// SPDX-License-Identifier: Apache-2.0
// What agreeing costs: through rank 0 in proportion to ranks and names, by bits neither.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/readiness.h"

namespace thinwire::test {
namespace {

constexpr int kCycles = 5;
constexpr Bytes kOneName = 60, kHead = 16;  ///< 12 and the letters of name and kind

/// Payload bytes that each rank sends in one cycle in which all names become ready at once.
std::vector<Bytes> sent_in_a_cycle(const std::string& transport, int ranks, int names,
                                   ReadinessBy by) {
  const auto comms = make_local(ranks, 20, transport);
  std::vector<Bytes> sent(static_cast<std::size_t>(ranks));
  ranks_as_threads(ranks, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    Readiness readiness(comm, {.by = by});
    const auto cycle = [&](int step) {
      for (int i = 0; i < names; ++i) {
        std::string name = "tensor " + std::to_string(i);
        name.resize(40, '.');
        readiness.mark(name, "f32 [10]");
      }
      EXPECT_EQ(readiness.cycle(step).size(), static_cast<std::size_t>(names));
    };
    cycle(0);
    comm.membership()->all_gather("before", "");
    const Bytes before = comm.counters().payload_bytes;
    for (int step = 1; step <= kCycles; ++step) cycle(step);
    comm.membership()->all_gather("after", "");
    sent[static_cast<std::size_t>(rank)] = (comm.counters().payload_bytes - before) / kCycles;
  });
  return sent;
}

Bytes vector_bytes(int names) { return 8 * ((4 + names + 63) / 64); }

TEST(ReadinessBytes, ThroughRankZeroTheyGrowWithRanksAndNames) {
  const Watchdog watchdog("bytes of the coordinator", 60);
  for (const std::string transport : {"local", "tcp"})
    for (const int ranks : {2, 4, 8})
      for (const int names : {40, 160}) {
        const auto sent = sent_in_a_cycle(transport, ranks, names, ReadinessBy::coordinator);
        Bytes received = 0;
        for (std::size_t r = 1; r < sent.size(); ++r) {
          EXPECT_EQ(sent[r], kHead + kOneName * names) << transport;
          received += sent[r];
        }
        // 60 T (K - 1), as published, and its heads; the answer once more.
        EXPECT_EQ(received, (ranks - 1) * (kHead + kOneName * names)) << transport;
        EXPECT_EQ(sent[0], (ranks - 1) * (kHead + kOneName * names)) << transport;
      }
}

TEST(ReadinessBytes, WithBitsTheyDoNotGrowWithRanks) {
  const Watchdog watchdog("bytes of bits", 60);
  EXPECT_EQ(vector_bytes(500), 64);
  for (const int names : {40, 160, 500})
    for (const int ranks : {2, 4, 8}) {
      const Bytes vector = vector_bytes(names);
      const std::string where = std::to_string(ranks) + " ranks";
      // All but tcp's short way send a part to its owner and get the rest: 2 P (K - 1) / K.
      for (const std::string transport : {"local", "tcp{algorithm=shard}"})
        for (const Bytes sent : sent_in_a_cycle(transport, ranks, names, ReadinessBy::bit_vector))
          EXPECT_LE(sent, 2 * vector) << transport << " " << where;
      // So short a message goes to everybody at once, in one round instead of two.
      for (const Bytes sent : sent_in_a_cycle("tcp", ranks, names, ReadinessBy::bit_vector))
        EXPECT_EQ(sent, vector * (ranks - 1)) << where;
    }
}

}  // namespace
}  // namespace thinwire::test
