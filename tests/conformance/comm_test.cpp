// SPDX-License-Identifier: Apache-2.0
// The conformance suite over the transports that need no torch and no launcher.
#include <gtest/gtest.h>

#include "tests/conformance/comm_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"

namespace thinwire::test {
namespace {

struct Case {
  std::string transport;
  int ranks;
  bool large = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.transport << " with " << c.ranks; }

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int n = 1; n <= 9; ++n) out.push_back({"local", n, n == 3});
  for (int n = 1; n <= 9; ++n) out.push_back({"tcp", n, n <= 3});
  for (const char* spec :
       {"tcp{algorithm=shard}", "tcp{algorithm=gather}", "tcp{chunk=1024,eager=0}"})
    for (const int n : {1, 2, 3, 5}) out.push_back({spec, n});
  out.push_back({"none", 1, true});
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

INSTANTIATE_TEST_SUITE_P(Local, CommConformance, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace thinwire::test
