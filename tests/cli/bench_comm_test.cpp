// SPDX-License-Identifier: Apache-2.0
// The measurement behind `thinwire bench comm`.
#include "thinwire/cli/bench_comm.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// `body` on each rank, as threads; rank 0's error, if any, is thrown.
template <class Body>
void on_threads(int ranks, const std::string& transport, Body body) {
  auto comms = make_local(ranks, 20, transport);
  std::vector<std::exception_ptr> errors(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(*comms[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  if (errors[0]) std::rethrow_exception(errors[0]);
}

TEST(BenchComm, MeasuresWhatALinkOfAKnownRateCarries) {
  const test::Watchdog watchdog;
  CommFigures figures;
  on_threads(2, "throttle{rate=80mbit}|local", [&](Comm& comm) {
    CommTiming bench(comm);
    const auto own = bench.measure(1 << 18, 0.2);
    if (comm.rank() == 0) figures = own;
  });
  const Json row = cli::row_of(figures, "throttle{rate=80mbit}|local", 2);
  EXPECT_EQ(row.at("bytes"), 1 << 18);
  EXPECT_GT(row.at("bus_bytes_per_s"), 0.7 * 1e7);
  EXPECT_LT(row.at("bus_bytes_per_s"), 1.1 * 1e7);
  EXPECT_GT(row.at("cpu_s_per_gb"), 0.0);
  EXPECT_FALSE(row.contains("time_ratio"));
}

TEST(BenchComm, RefusesToTimeAWrongSum) {
  const test::Watchdog watchdog;
  try {
    on_threads(2, "fault{action=corrupt,rank=1,call=0}|local",
               [](Comm& comm) { CommTiming(comm).measure(4096, 0.01); });
    FAIL() << "a wrong sum was timed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is wrong: element 512 is"), std::string::npos)
        << error.what();
  }
}

TEST(BenchComm, ComparesShortCallsOfTcpWithTheTarget) {
  CommFigures figures{.bytes = 4096, .calls = 10, .time = {3e-4, 2e-4, 4e-4}, .cpu_s = 1e-3};
  const Json slow = cli::row_of(figures, "tcp{chunk=1MiB}", 2);
  EXPECT_DOUBLE_EQ(slow.at("time_s"), 3e-4);  // the median
  EXPECT_DOUBLE_EQ(slow.at("time_ratio"), 3);
  EXPECT_DOUBLE_EQ(slow.at("bus_bytes_per_s"), 4096 / 3e-4);
  EXPECT_NEAR(slow.at("cpu_s_per_gb"), 1e-3 / (2 * 4096 * 30 / 1e9), 1e-9);
  EXPECT_NE(cli::missed(slow).find("300 us"), std::string::npos) << cli::missed(slow);
  figures.time = {9e-5};
  EXPECT_EQ(cli::missed(cli::row_of(figures, "tcp", 2)), "");
  EXPECT_EQ(cli::missed(cli::row_of(figures, "local", 2)), "");
}

}  // namespace
}  // namespace thinwire
