// SPDX-License-Identifier: Apache-2.0
// The conformance suite over the transports that need no torch and no launcher.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/conformance/comm_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/transports.h"

namespace thinwire::test {
namespace {

struct Case {
  std::string transport;
  int ranks;
  bool large = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.transport << " with " << c.ranks; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Ten times as slow; what more ranks and larger sums add is results, which the other builds check.
const std::vector<int> kRanks{1, 2, 3, 5}, kFewRanks{1, 3};
constexpr bool kLarge = false;
#else
const std::vector<int> kRanks{1, 2, 3, 4, 5, 6, 7, 8, 9}, kFewRanks{1, 2, 3, 5};
constexpr bool kLarge = true;
#endif

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const int n : kRanks) out.push_back({"local", n, kLarge && n == 3});
  for (const int n : kRanks) out.push_back({"tcp", n, n == 2 || (kLarge && n <= 3)});
  for (const char* spec :
       {"tcp{algorithm=shard}", "tcp{algorithm=gather}", "tcp{chunk=1024,eager=0}"})
    for (const int n : kFewRanks) out.push_back({spec, n});
  out.push_back({"none", 1, true});
  out.push_back({"record|tcp", 2});
  for (const char* chain : {"record|local", "throttle{rate=10gbit}|local", "fault|local",
                            "record|throttle{latency_ms=0.1}|fault|local"})
    for (const int n : {1, 3}) out.push_back({chain, n});
  return out;
}

class CommConformance : public ::testing::TestWithParam<Case> {};

TEST_P(CommConformance, Threads) {
  const Watchdog watchdog("comm conformance", 120);
  const auto comms = make_local(GetParam().ranks, 20, GetParam().transport);
  ranks_as_threads(GetParam().ranks, [&](Rank rank) {
    run_comm_checks(*comms[static_cast<std::size_t>(rank)], GetParam().large);
  });
}

/// Each rank a process, joined by a file, over real sockets.
const RegisterScenario kConformance("comm conformance", [](const RankContext& context) {
  const Watchdog watchdog("comm conformance in a process", 100);
  JoinOptions join;
  join.rank = context.rank;
  join.size = context.size;
  join.address = "file:" + context.args.at(1);
  join.timeout_s = 60;
  const auto comm = make_tcp(parse_spec(context.args.at(0)), join_group(join));
  run_comm_checks(*comm, false);
  comm->barrier("end");
  return 0;
});

TEST(CommConformanceProcesses, Tcp) {
  const Watchdog watchdog("comm conformance as processes", 240);
  for (const int n : {2, 3}) {
    const auto file =
        std::filesystem::temp_directory_path() /
        ("thinwire_conformance_" + std::to_string(::getpid()) + "_" + std::to_string(n));
    const auto results = ranks_as_processes(n, "comm conformance", {"tcp", file.string()}, 110);
    std::filesystem::remove(file);
    for (const auto& result : results) EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Local, CommConformance, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace thinwire::test
