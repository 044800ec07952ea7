// SPDX-License-Identifier: Apache-2.0
// What ranks that are threads are told when one of them errs, leaves or is late.
#include <gtest/gtest.h>

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

/// Runs fn on every rank and gives the texts of the errors; every rank must have one, in time, and
/// keep it.
std::vector<std::string> texts(int n, std::string_view transport,
                               const std::function<void(Comm&)>& fn) {
  auto comms = make_local(n, kT, transport);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(n, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    try {
      fn(comm);
    } catch (const CommError& first) {
      const std::string fault = comm.membership()->fault() ? comm.membership()->fault()->text : "";
      EXPECT_FALSE(fault.empty());
      for (int again = 0; again < 2; ++again) {
        float x = 0;
        try {
          comm.all_reduce({0, 99}, {&x, 1, DType::f32}, Combine::sum).wait();
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

Handle reduce(Comm& comm, std::vector<float>& data, MessageId id) {
  return comm.all_reduce(id, {data.data(), static_cast<std::int64_t>(data.size()), DType::f32},
                         Combine::sum);
}

TEST(KnownFailures, KF37_SizeMismatchOverLocal) {
  const Watchdog watchdog("KF-37 (i)");
  for (const auto& text : texts(2, "local", [](Comm& comm) {
         std::vector<float> data(comm.rank() == 0 ? 1000 : 999);
         reduce(comm, data, {2, 4}).wait();
       }))
    expect_names(text,
                 {"CommError", "all_reduce", "exchange 2", "rank 0", "4000", "rank 1", "3996"});
}

TEST(KnownFailures, KF37_LateRankOverLocal) {
  const Watchdog watchdog("KF-37 (ii)");
  auto comms = make_local(2, kT);
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
                      "rank 1 (missing", "2.0 s"});
  EXPECT_THROW(reduce(*comms[1], data, {2, 4}), CommError);
}

TEST(KnownFailures, KF42_LeftOutExchangeOverLocal) {
  const Watchdog watchdog("KF-42");
  for (const auto& text : texts(3, "local", [](Comm& comm) {
         std::vector<float> data(1000);
         for (int step = 0; step < 6; ++step)
           if (comm.rank() != 1 || step != 2) reduce(comm, data, {0, step}).wait();
       }))
    expect_names(text, {"CommError", "exchange 0", "step 2", "rank 1"});
}

TEST(LocalFaults, OtherDifferencesAreErrorsOnAllRanks) {
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
    for (const auto& text : texts(3, "local", [&, &call = call](Comm& comm) {
           std::vector<float> own(8);
           if (comm.rank() == 1)
             call(comm).wait();
           else
             reduce(comm, own, {0, 0}).wait();
         }))
      expect_names(text, {"rank 1 started", word, "all_reduce"});
}

TEST(LocalFaults, UnevenCountsThatDoNotMeet) {
  const Watchdog watchdog("uneven");
  for (const auto& text : texts(2, "local", [](Comm& comm) {
         std::vector<float> in(4), out(4);
         const std::vector<std::int64_t> in_counts{2, 2},
             out_counts{comm.rank() == 0 ? 2 : 3, comm.rank() == 0 ? 2 : 1};
         comm.all_to_all({1, 1}, {out.data(), 4, DType::f32}, {in.data(), 4, DType::f32},
                         out_counts, in_counts)
             .wait();
       }))
    expect_names(text, {"rank 0 sends 2 elements (8 bytes)", "rank 1, which expects 3 (12 bytes)"});
}

TEST(LocalFaults, MessagesThatDoNotFit) {
  const Watchdog watchdog("messages");
  for (const auto& text : texts(2, "local", [](Comm& comm) {
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

TEST(LocalFaults, MissingMessageNamesTheSender) {
  const Watchdog watchdog("missing message");
  auto comms = make_local(3, 0.3);
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

TEST(LocalFaults, BarrierNamesTheMissing) {
  const Watchdog watchdog("barrier");
  auto comms = make_local(3, 0.3);
  const auto errors = errors_of_ranks(
      2, [&](Rank rank) { comms[static_cast<std::size_t>(rank)]->barrier("epoch"); });
  for (const auto& error : errors)
    expect_names(text_of(error), {"CommError", "barrier", "rank 2 (missing"});
}

TEST(LocalFaults, ARankThatLeavesIsNoticedAtOnce) {
  const Watchdog watchdog("leaves");
  auto comms = make_local(3, 60);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
    std::vector<float> data(1000);
    for (int step = 0; step < 5; ++step) {
      if (rank == 1 && step == 3) return;  // drops its communicator
      reduce(*comm, data, {0, step}).wait();
    }
  });
  EXPECT_LT(since(start), 1 + late_s());
  EXPECT_FALSE(errors[1]);
  for (const Rank rank : {0, 2})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]),
                 {"CommError", "all_reduce", "step 3", "rank 1"});
}

TEST(LocalFaults, AnExceptionOfOneRankEndsTheOthersWaits) {
  const Watchdog watchdog("exception");
  auto comms = make_local(4, 60);
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(4, [&](Rank rank) {
    const auto comm = std::move(comms[static_cast<std::size_t>(rank)]);
    std::vector<float> a(100), b(100);
    if (rank == 2) throw DataError("broken file");
    const Handle first = reduce(*comm, a, {0, 0}), second = reduce(*comm, b, {1, 0});
    EXPECT_THROW(first.wait(), CommError);
    second.wait();
  });
  EXPECT_LT(since(start), 1 + late_s());
  for (const Rank rank : {0, 1, 3})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"CommError", "rank 2"});
}

TEST(LocalFaults, AFaultOfTheGroupEndsSubGroupsToo) {
  const Watchdog watchdog("sub-group");
  auto comms = make_local(4, 60);
  const auto errors = errors_of_ranks(4, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    const auto half = comm.split(rank / 2, rank);
    std::vector<float> data(10);
    if (rank == 3)
      comm.membership()->fail({3, "rank 3 gave up"});
    else if (rank != 2)
      half->recv({1, 1}, {data.data(), 10, DType::f32}, 1 - half->rank()).wait();
    else
      reduce(*half, data, {1, 1}).wait();
  });
  for (const Rank rank : {0, 1, 2})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"rank 3 gave up"});
}

TEST(LocalFaults, AHandleOutlivesItsCommunicator) {
  const Watchdog watchdog("outlives");
  auto comms = make_local(2, 60);
  std::vector<float> data(10);
  Handle handle = reduce(*comms[0], data, {0, 0});
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
