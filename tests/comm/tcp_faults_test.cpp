// SPDX-License-Identifier: Apache-2.0
// What ranks over sockets are told when one of them errs, leaves or is late. Ranks are threads
// here; tcp_processes_test.cpp kills and freezes processes.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

constexpr Seconds kT = 2;

Seconds since(Deadline start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void expect_names(const std::string& text, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    EXPECT_NE(text.find(name), std::string::npos) << "'" << name << "' is not in: " << text;
}

Handle reduce(Comm& comm, std::vector<float>& data, MessageId id) {
  return comm.all_reduce(id, {data.data(), static_cast<std::int64_t>(data.size()), DType::f32},
                         Combine::sum);
}

/// Runs fn on every rank and gives the texts of the errors; every rank must have one, in time, and
/// keep it for all later calls.
std::vector<std::string> texts(int n, const std::string& transport,
                               const std::function<void(Comm&)>& fn) {
  auto comms = make_local(n, kT, transport);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(n, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    try {
      fn(comm);
    } catch (const CommError&) {
      const std::string fault = comm.membership()->fault().value_or(Fault{}).text;
      EXPECT_FALSE(fault.empty());
      for (int again = 0; again < 2; ++again) {
        std::vector<float> x(1);
        try {
          reduce(comm, x, {0, 99}).wait();
          ADD_FAILURE() << "a later call passed";
        } catch (const CommError& later) {
          expect_names(later.what(), {fault});
        }
      }
      throw;
    }
  });
  EXPECT_LT(since(start), kT + 1 + late_s());
  std::vector<std::string> out;
  for (const auto& error : errors) {
    EXPECT_TRUE(error);
    out.push_back(text_of(error));
  }
  return out;
}

TEST(KnownFailures, KF37_SizeMismatchOverTcp) {
  const Watchdog watchdog("KF-37 (i)");
  for (const char* spec : {"tcp", "tcp{algorithm=shard}", "tcp{eager=0}"})
    for (const auto& text : texts(2, spec, [](Comm& comm) {
           std::vector<float> data(comm.rank() == 0 ? 1000 : 999);
           reduce(comm, data, {2, 4}).wait();
         }))
      expect_names(text,
                   {"CommError", "all_reduce", "exchange 2", "rank 0", "4000", "rank 1", "3996"});
}

TEST(KnownFailures, KF37_LateRankOverTcp) {
  const Watchdog watchdog("KF-37 (ii)");
  auto comms = make_local(2, kT, "tcp");
  ranks_as_threads(2, [&](Rank rank) {
    std::vector<float> data(1000);
    for (int step = 0; step < 4; ++step)
      reduce(*comms[static_cast<std::size_t>(rank)], data, {2, step}).wait();
  });
  std::vector<float> data(1000);
  const auto start = Clock::now();
  std::string text;
  try {
    reduce(*comms[0], data, {2, 4}).wait();
  } catch (const CommError& error) {
    text = error.what();
  }
  EXPECT_LT(since(start), kT + 1 + late_s());
  expect_names(text, {"all_reduce", "step 4", "exchange 2", "4000", "rank 0 (local)",
                      "rank 1 (missing)", "2.0 s"});
  EXPECT_THROW(reduce(*comms[1], data, {2, 4}).wait(), CommError);
}

TEST(KnownFailures, KF42_LeftOutExchangeOverTcp) {
  const Watchdog watchdog("KF-42");
  for (const auto& text : texts(3, "tcp", [](Comm& comm) {
         std::vector<float> data(1000);
         for (int step = 0; step < 6; ++step)
           if (comm.rank() != 1 || step != 2) reduce(comm, data, {0, step}).wait();
       }))
    expect_names(text, {"CommError", "exchange 0", "step 2", "rank 1"});
}

TEST(KnownFailures, KF43_EverySizeAndAlgorithmOverTcp) {
  for (int n = 1; n <= 9; ++n)
    for (const char* spec : {"tcp", "tcp{algorithm=shard}", "tcp{algorithm=gather}"}) {
      const Watchdog watchdog("KF-43", 10);
      const auto comms = make_local(n, 10, spec);
      ranks_as_threads(n, [&](Rank rank) {
        for (const std::size_t count : {0, 1, 2, 7, 8, 1000}) {
          std::vector<float> data(count, static_cast<float>(rank + 1));
          reduce(*comms[static_cast<std::size_t>(rank)], data, {0, static_cast<int>(count)}).wait();
          for (const float x : data) ASSERT_EQ(x, static_cast<float>(n * (n + 1) / 2));
        }
      });
    }
}

TEST(TcpFaults, OtherDifferencesAreErrorsOnAllRanks) {
  const Watchdog watchdog("differences");
  std::vector<float> data(8);
  const Buffer f32{data.data(), 8, DType::f32}, i32{data.data(), 8, DType::i32};
  using Call = std::function<Handle(Comm&)>;
  const std::vector<std::pair<Call, std::string>> pairs{
      {[&](Comm& c) { return c.all_reduce({0, 0}, i32, Combine::sum); }, "i32"},
      {[&](Comm& c) { return c.all_reduce({0, 0}, f32, Combine::max); }, "max"},
      {[&](Comm& c) { return c.all_reduce({5, 0}, f32, Combine::sum); }, "exchange 5"},
      {[&](Comm& c) { return c.broadcast({0, 0}, f32, 1); }, "broadcast"}};
  for (const auto& [call, word] : pairs)
    for (const auto& text : texts(3, "tcp", [&, &call = call](Comm& comm) {
           std::vector<float> own(8);
           if (comm.rank() == 1) {
             call(comm).wait();
             comm.barrier("afterwards");  // a root is done once its data is on the wire
           } else {
             reduce(comm, own, {0, 0}).wait();
           }
         }))
      expect_names(text, {"rank 1 started", word, "all_reduce"});
}

TEST(TcpFaults, MessagesThatDoNotFit) {
  const Watchdog watchdog("messages");
  for (const char* spec : {"tcp", "tcp{eager=0}"})
    for (const auto& text : texts(2, spec, [](Comm& comm) {
           std::vector<float> data(8);
           if (comm.rank() == 0) {
             comm.send({3, 1}, {data.data(), 8, DType::f32}, 1).wait();
             reduce(comm, data, {4, 1}).wait();
           } else {
             comm.recv({3, 1}, {data.data(), 7, DType::f32}, 0).wait();
           }
         }))
      expect_names(text, {"32 bytes", "28 bytes", "rank 0", "rank 1"});
}

TEST(TcpFaults, BarrierNamesTheMissing) {
  const Watchdog watchdog("barrier");
  auto comms = make_local(3, 0.5, "tcp");
  const auto errors = errors_of_ranks(
      2, [&](Rank rank) { comms[static_cast<std::size_t>(rank)]->barrier("epoch"); });
  for (const auto& error : errors)
    expect_names(text_of(error), {"CommError", "barrier", "epoch", "rank 2 (missing)"});
}

TEST(TcpFaults, BarriersOfOtherNamesAreAnError) {
  const Watchdog watchdog("barrier names");
  for (const auto& text : texts(3, "tcp", [](Comm& comm) {
         comm.barrier("start");
         comm.barrier(comm.rank() == 2 ? "end" : "epoch");
       }))
    expect_names(text, {"CommError", "rank 0", "rank 2", "barriers of other names"});
}

TEST(TcpFaults, ARankThatLeavesIsNoticedAtOnce) {
  const Watchdog watchdog("leaves");
  for (const std::size_t count : {1000, 500000}) {
    auto comms = make_local(3, 60, "tcp");
    const auto start = Clock::now();
    const auto errors = errors_of_ranks(3, [&](Rank rank) {
      auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
      std::vector<float> a(count), b(count);
      for (int step = 0; step < 5; ++step) {
        if (rank == 1 && step == 3) return;  // drops its communicator
        const Handle first = reduce(*comm, a, {0, step}), second = reduce(*comm, b, {1, step});
        first.wait();
        second.wait();
      }
    });
    EXPECT_LT(since(start), 2 + late_s());
    EXPECT_FALSE(errors[1]) << text_of(errors[1]);
    for (const Rank rank : {0, 2})
      expect_names(text_of(errors[static_cast<std::size_t>(rank)]),
                   {"CommError", "all_reduce", "exchange", "step 3", "rank 1"});
  }
}

TEST(TcpFaults, EveryWaitOfEveryThreadEnds) {
  const Watchdog watchdog("every wait");
  auto comms = make_local(3, 60, "tcp");
  std::vector<float> a(10), b(500000), c(10);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    if (rank == 2) comms[0]->membership()->fail({1, "rank 1 gave up"});
    if (rank == 0) reduce(*comms[0], a, {0, 1}).wait();
    if (rank == 1) comms[1]->recv({5, 1}, {c.data(), 10, DType::f32}, std::nullopt).wait();
  });
  for (const Rank rank : {0, 1})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"rank 1 gave up"});
  EXPECT_THROW(reduce(*comms[2], b, {2, 1}).wait(), CommError);
  EXPECT_LT(since(start), 2 + late_s());
}

TEST(TcpFaults, AHandleOutlivesItsCommunicator) {
  const Watchdog watchdog("outlives");
  auto comms = make_local(2, 60, "tcp");
  std::vector<float> data(10);
  Handle handle = reduce(*comms[0], data, {0, 0});
  comms.clear();
  EXPECT_THROW(handle.wait(), CommError);
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
