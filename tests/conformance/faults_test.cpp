// SPDX-License-Identifier: Apache-2.0
// What ranks are told when one of them errs, leaves or is late, over every transport whose ranks
// can be threads. tcp_processes_test.cpp kills and freezes processes.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/comm_faults.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

constexpr Seconds kT = 2;

class Faults : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<std::unique_ptr<Comm>> make(int n, Seconds timeout_s = kT) const {
    return make_local(n, timeout_s, GetParam());
  }
  /// Runs fn on every rank and gives the texts of the errors; every rank must have one, in time,
  /// and keep it for all later calls.
  std::vector<std::string> texts(int n, const std::function<void(Comm&)>& fn) const {
    auto comms = make(n);
    return fault_texts(comms, kT, [&](Comm& comm) {
      try {
        fn(comm);
      } catch (const CommError&) {
        const std::string fault = comm.membership()->fault().value_or(Fault{}).text;
        EXPECT_FALSE(fault.empty());
        for (int again = 0; again < 2; ++again) {
          std::vector<float> x(1);
          try {
            all_reduce_of(comm, x, {0, 99}).wait();
            ADD_FAILURE() << "a later call passed";
          } catch (const CommError& later) {
            expect_names(later.what(), {fault});
          }
        }
        throw;
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(, Faults,
                         ::testing::Values("local", "tcp", "tcp{algorithm=shard}", "tcp{eager=0}"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

TEST_P(Faults, KF37_SizeMismatch) {
  const Watchdog watchdog("KF-37 (i)");
  for (const auto& text : texts(2, [](Comm& comm) {
         std::vector<float> data(comm.rank() == 0 ? 1000 : 999);
         all_reduce_of(comm, data, {2, 4}).wait();
       }))
    expect_names(text,
                 {"CommError", "all_reduce", "exchange 2", "rank 0", "4000", "rank 1", "3996"});
}

TEST_P(Faults, KF37_LateRank) {
  const Watchdog watchdog("KF-37 (ii)");
  auto comms = make(2);
  ranks_as_threads(2, [&](Rank rank) {
    std::vector<float> data(1000);
    for (int step = 0; step < 4; ++step)
      all_reduce_of(*comms[static_cast<std::size_t>(rank)], data, {2, step}).wait();
  });
  std::vector<float> data(1000);
  const auto start = Clock::now();
  std::string text;
  try {
    all_reduce_of(*comms[0], data, {2, 4}).wait();
  } catch (const CommError& error) {
    text = error.what();
  }
  EXPECT_LT(seconds_since(start), kT + 1 + late_s());
  expect_names(text, {"all_reduce", "step 4", "exchange 2", "4000", "rank 0 (local)",
                      "rank 1 (missing", "2.0 s"});
  EXPECT_THROW(all_reduce_of(*comms[1], data, {2, 4}).wait(), CommError);
}

TEST_P(Faults, KF42_LeftOutExchange) {
  const Watchdog watchdog("KF-42");
  for (const auto& text : texts(3, [](Comm& comm) {
         std::vector<float> data(1000);
         for (int step = 0; step < 6; ++step)
           if (comm.rank() != 1 || step != 2) all_reduce_of(comm, data, {0, step}).wait();
       }))
    expect_names(text, {"CommError", "exchange 0", "step 2", "rank 1"});
}

TEST_P(Faults, OtherDifferencesAreErrorsOnAllRanks) {
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
    for (const auto& text : texts(3, [&, &call = call](Comm& comm) {
           std::vector<float> own(8);
           if (comm.rank() == 1) {
             call(comm).wait();
             comm.barrier("afterwards");  // a root is done once its data is on the wire
           } else {
             all_reduce_of(comm, own, {0, 0}).wait();
           }
         }))
      expect_names(text, {"rank 1 started", word, "all_reduce"});
}

TEST_P(Faults, UnevenCountsThatDoNotMeet) {
  const Watchdog watchdog("uneven");
  for (const auto& text : texts(2, [](Comm& comm) {
         std::vector<float> in(4), out(5);
         const std::vector<std::int64_t> in_counts{2, 2}, out_counts{comm.rank() == 0 ? 2 : 3, 2};
         comm.all_to_all({1, 1}, {out.data(), comm.rank() == 0 ? 4 : 5, DType::f32},
                         {in.data(), 4, DType::f32}, out_counts, in_counts)
             .wait();
         comm.barrier("afterwards");  // over tcp a rank is done once all for it has come
       }))
    expect_names(text, {"rank 0 sends 2 elements (8 bytes)", "rank 1, which expects 3 (12 bytes)"});
}

TEST_P(Faults, MessagesThatDoNotFit) {
  const Watchdog watchdog("messages");
  for (const auto& text : texts(2, [](Comm& comm) {
         std::vector<float> data(8);
         if (comm.rank() == 0) {
           comm.send({3, 1}, {data.data(), 8, DType::f32}, 1).wait();
           all_reduce_of(comm, data, {4, 1}).wait();
         } else {
           comm.recv({3, 1}, {data.data(), 7, DType::f32}, 0).wait();
         }
       }))
    expect_names(text, {"32 bytes", "28 bytes", "rank 0", "rank 1"});
}

TEST_P(Faults, MissingMessageNamesTheSender) {
  const Watchdog watchdog("missing message");
  auto comms = make(3, 0.3);
  float x = 0;
  std::string text;
  try {
    comms[0]->recv({3, 7}, {&x, 1, DType::f32}, 2).wait();
  } catch (const CommError& error) {
    text = error.what();
  }
  expect_names(text,
               {"recv", "exchange 3", "step 7", "rank 0 (local)", "rank 2 (missing", "0.3 s"});
}

TEST_P(Faults, BarrierNamesTheMissing) {
  const Watchdog watchdog("barrier");
  auto comms = make(3, 0.5);
  const auto errors = errors_of_ranks(
      2, [&](Rank rank) { comms[static_cast<std::size_t>(rank)]->barrier("epoch"); });
  for (const auto& error : errors)
    expect_names(text_of(error), {"CommError", "barrier", "epoch", "rank 2 (missing"});
}

TEST_P(Faults, BarriersOfOtherNamesAreAnError) {
  const Watchdog watchdog("barrier names");
  for (const auto& text : texts(3, [](Comm& comm) {
         comm.barrier("start");
         comm.barrier(comm.rank() == 2 ? "end" : "epoch");
       }))
    expect_names(text, GetParam() == std::string("local")
                           ? std::vector<std::string>{"CommError", "rank 2", "'epoch'", "'end'"}
                           : std::vector<std::string>{"CommError", "rank 0", "rank 2",
                                                      "barriers of other names"});
}

TEST_P(Faults, ARankThatLeavesIsNoticedAtOnce) {
  const Watchdog watchdog("leaves");
  for (const std::size_t count : {1000, 500000}) {
    auto comms = make(3, 60);
    Clock::time_point left;  // read when all have ended
    const auto errors = errors_of_ranks(3, [&](Rank rank) {
      auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
      std::vector<float> a(count), b(count);
      for (int step = 0; step < 5; ++step) {
        if (rank == 1 && step == 3) {
          left = Clock::now();
          return;  // drops its communicator
        }
        const Handle first = all_reduce_of(*comm, a, {0, step}),
                     second = all_reduce_of(*comm, b, {1, step});
        first.wait();
        second.wait();
      }
    });
    EXPECT_LT(seconds_since(left), 1 + late_s());
    EXPECT_FALSE(errors[1]) << text_of(errors[1]);
    for (const Rank rank : {0, 2})
      expect_names(text_of(errors[static_cast<std::size_t>(rank)]),
                   {"CommError", "all_reduce", "exchange", "step 3", "rank 1"});
  }
}

TEST_P(Faults, AnExceptionOfOneRankEndsTheOthersWaits) {
  const Watchdog watchdog("exception");
  auto comms = make(4, 60);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(4, [&](Rank rank) {
    const auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
    std::vector<float> a(100), b(100);
    if (rank == 2) throw DataError("broken file");
    const Handle first = all_reduce_of(*comm, a, {0, 0}), second = all_reduce_of(*comm, b, {1, 0});
    EXPECT_THROW(first.wait(), CommError);
    second.wait();
  });
  EXPECT_LT(seconds_since(start), 1 + late_s());
  for (const Rank rank : {0, 1, 3})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"CommError", "rank 2"});
}

TEST_P(Faults, AFaultOfTheGroupEndsSubGroupsToo) {
  const Watchdog watchdog("sub-group");
  auto comms = make(4, 60);
  const auto errors = errors_of_ranks(4, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    const auto half = comm.split(rank / 2, rank);
    std::vector<float> data(10);
    if (rank == 3)
      comm.membership()->fail({3, "rank 3 gave up"});
    else if (rank != 2)
      half->recv({1, 1}, {data.data(), 10, DType::f32}, 1 - half->rank()).wait();
    else
      all_reduce_of(*half, data, {1, 1}).wait();
  });
  for (const Rank rank : {0, 1, 2})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"rank 3 gave up"});
}

TEST_P(Faults, EveryWaitOfEveryThreadEnds) {
  const Watchdog watchdog("every wait");
  auto comms = make(3, 60);
  std::vector<float> a(10), b(500000), c(10);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    if (rank == 2) comms[0]->membership()->fail({1, "rank 1 gave up"});
    if (rank == 0) all_reduce_of(*comms[0], a, {0, 1}).wait();
    if (rank == 1) comms[1]->recv({5, 1}, {c.data(), 10, DType::f32}, std::nullopt).wait();
  });
  for (const Rank rank : {0, 1})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"rank 1 gave up"});
  EXPECT_THROW(all_reduce_of(*comms[2], b, {2, 1}).wait(), CommError);
  EXPECT_LT(seconds_since(start), 1 + late_s());
}

TEST_P(Faults, AHandleOutlivesItsCommunicator) {
  const Watchdog watchdog("outlives");
  auto comms = make(2, 60);
  std::vector<float> data(10);
  Handle handle = all_reduce_of(*comms[0], data, {0, 0});
  comms.clear();
  EXPECT_THROW(handle.wait(), CommError);
}

TEST(MakeLocal, RefusesOtherTransports) {
  EXPECT_THROW(make_local(2, 1, "mpi"), ConfigError);
  EXPECT_THROW(make_local(0, 1), ConfigError);
  EXPECT_THROW(make_local(2, 1, "none"), ConfigError);
  EXPECT_THROW(make_local(2, 1, "local{speed=3}"), ConfigError);
  EXPECT_THROW(make_comm("local", {.rank = 0, .size = 2}), ConfigError);
  EXPECT_EQ(make_comm("none", {})->size(), 1);
}

}  // namespace
}  // namespace thinwire::test
