// SPDX-License-Identifier: Apache-2.0
// Ranks over sockets: what the faults that all transports share (tests/conformance/faults_test.cpp)
// leave out.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/comm_faults.h"

namespace thinwire::test {
namespace {

TEST(KnownFailures, KF43_EverySizeAndAlgorithmOverTcp) {
  for (int n = 1; n <= 9; ++n)
    for (const char* spec : {"tcp", "tcp{algorithm=shard}", "tcp{algorithm=gather}"}) {
      const Watchdog watchdog("KF-43", 10);
      const auto comms = make_local(n, 10, spec);
      ranks_as_threads(n, [&](Rank rank) {
        for (const std::size_t count : {0, 1, 2, 7, 8, 1000}) {
          std::vector<float> data(count, static_cast<float>(rank + 1));
          all_reduce_of(*comms[static_cast<std::size_t>(rank)], data, {0, static_cast<int>(count)})
              .wait();
          for (const float x : data) ASSERT_EQ(x, static_cast<float>(n * (n + 1) / 2));
        }
      });
    }
}

/// What a rank has sent before it left in order still arrives, although the others' announcements
/// of that very call reach its closed socket.
TEST(TcpFaults, WhatWasSentBeforeLeavingArrives) {
  const Watchdog watchdog("leaving");
  for (int repeat = 0; repeat < 20; ++repeat) {
    auto comms = make_local(3, 10, "tcp");
    ranks_as_threads(3, [&](Rank rank) {
      auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
      std::vector<std::int32_t> data(15000, rank == 0 ? repeat : -1), again = data;
      const Buffer first{data.data(), 15000, DType::i32}, second{again.data(), 15000, DType::i32};
      const Handle a = comm->broadcast({1, repeat}, first, 0);
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      comm->broadcast({2, repeat}, second, 0).wait();
      a.wait();
      for (const auto x : data) ASSERT_EQ(x, repeat);
      for (const auto x : again) ASSERT_EQ(x, repeat);
    });
  }
}

}  // namespace
}  // namespace thinwire::test
