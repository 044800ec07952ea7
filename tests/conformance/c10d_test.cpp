// SPDX-License-Identifier: Apache-2.0
// The conformance suite over Gloo, as PyTorch's c10d has it; and what is told when a rank errs. It
// also is the test of the declarations that stand for Gloo's own headers: with a wrong layout
// nothing here would run.
#include <gtest/gtest.h>

#include "tests/conformance/comm_checks.h"
#include "tests/support/comm_faults.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/c10d.h"
#include "thinwire/comm/membership.h"

namespace thinwire::test {
namespace {

class C10dConformance : public ::testing::TestWithParam<int> {};

TEST_P(C10dConformance, GlooAsThreads) {
  const Watchdog watchdog("c10d conformance", 240);
  const auto groups = local_group(GetParam(), 60);
  ranks_as_threads(GetParam(), [&](Rank rank) {
    const auto comm = make_gloo(groups[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(comm->caps().name, "c10d");
    run_comm_checks(*comm, GetParam() == 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, C10dConformance, ::testing::Values(1, 2, 3));

/// Runs fn over Gloo with T = 2 s; every rank must have an error, in time.
std::vector<std::string> texts(int n, const std::function<void(Comm&)>& fn) {
  const auto groups = local_group(n, 2);
  std::vector<std::unique_ptr<Comm>> comms(static_cast<std::size_t>(n));
  ranks_as_threads(n, [&](Rank rank) {
    comms[static_cast<std::size_t>(rank)] = make_gloo(groups[static_cast<std::size_t>(rank)]);
  });
  return fault_texts(comms, 2, fn);
}

TEST(KnownFailures, KF37_SizeMismatchOverC10d) {
  const Watchdog watchdog("KF-37 (i) c10d");
  for (const auto& text : texts(2, [](Comm& comm) {
         std::vector<float> data(comm.rank() == 0 ? 1000 : 999);
         comm.all_reduce({2, 4}, {data.data(), static_cast<std::int64_t>(data.size()), DType::f32},
                         Combine::sum)
             .wait();
       }))
    expect_names(text,
                 {"CommError", "all_reduce", "exchange 2", "rank 0", "4000", "rank 1", "3996"});
}

TEST(KnownFailures, KF37_LateRankOverC10d) {
  const Watchdog watchdog("KF-37 (ii) c10d");
  for (const auto& text : texts(2, [](Comm& comm) {
         std::vector<float> data(1000);
         const Buffer buffer{data.data(), 1000, DType::f32};
         comm.all_reduce({2, 3}, buffer, Combine::sum).wait();
         if (comm.rank() == 0)
           comm.all_reduce({2, 4}, buffer, Combine::sum).wait();
         else
           comm.recv({9, 9}, buffer, 0).wait();
       }))
    expect_names(text, {"CommError", "step"});
}

TEST(KnownFailures, KF42_LeftOutExchangeOverC10d) {
  const Watchdog watchdog("KF-42 c10d");
  for (const auto& text : texts(3, [](Comm& comm) {
         std::vector<float> data(1000);
         for (int step = 0; step < 6; ++step)
           if (comm.rank() != 1 || step != 2)
             comm.all_reduce({0, step}, {data.data(), 1000, DType::f32}, Combine::sum).wait();
       }))
    expect_names(text, {"CommError", "exchange 0", "step 2", "rank 1"});
}

TEST(C10d, BarriersOfOtherNamesAreAnError) {
  const Watchdog watchdog("c10d barrier names");
  for (const auto& text :
       texts(3, [](Comm& comm) { comm.barrier(comm.rank() == 2 ? "end" : "epoch"); }))
    expect_names(text, {"CommError", "rank 0", "rank 2", "barriers of other names"});
}

TEST(C10d, ADeadRankEndsEveryWaitAtOnceAndLaterCallsToo) {
  const Watchdog watchdog("c10d death");
  const auto groups = local_group(3, 60);
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    const auto comm = make_gloo(groups[static_cast<std::size_t>(rank)]);
    std::vector<float> data(1000);
    const Buffer buffer{data.data(), 1000, DType::f32};
    comm->all_reduce({0, 0}, buffer, Combine::sum).wait();
    const auto start = Clock::now();
    if (rank == 1) {
      comm->membership()->fail({1, "rank 1 died"});
      return;
    }
    try {
      comm->all_reduce({0, 1}, buffer, Combine::sum).wait();
    } catch (const std::exception&) {
      EXPECT_LT(seconds_since(start), 1 + late_s());
    }
    comm->all_reduce({0, 2}, buffer, Combine::sum).wait();
  });
  for (const Rank rank : {0, 2})
    expect_names(text_of(errors[static_cast<std::size_t>(rank)]), {"CommError", "rank 1 died"});
}

}  // namespace
}  // namespace thinwire::test
