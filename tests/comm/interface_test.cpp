// SPDX-License-Identifier: Apache-2.0
// Which interface a group uses, in two network namespaces that are joined by two links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/notice.h"

namespace thinwire {
namespace {

using test::RankContext;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool run(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

/// Namespaces a and b; link "slow" (10.90.2.0/24) is made first, then "fast" (10.90.1.0/24).
class TwoNamespaces {
 public:
  TwoNamespaces() {
    ok_ = run("ip netns add " + name(0)) && run("ip netns add " + name(1));
    int net = 2;
    for (const char* link : {"slow", "fast"}) {
      ok_ = ok_ && run("ip -n " + name(0) + " link add " + link + " type veth peer name " + link +
                       " netns " + name(1));
      for (Rank r = 0; r < 2; ++r) {
        const auto end = std::to_string(net) + "." + std::to_string(r + 1);
        ok_ = ok_ && run("ip -n " + name(r) + " addr add 10.90." + end + "/24 dev " + link) &&
              run("ip -n " + name(r) + " link set " + link + " up") &&
              run("ip -n " + name(r) + " link set lo up");
      }
      --net;
    }
  }
  ~TwoNamespaces() {
    for (Rank r = 0; r < 2; ++r) run("ip netns del " + name(r));
  }
  bool ok() const { return ok_; }
  std::string name(Rank rank) const {
    return "tw" + std::to_string(::getpid()) + (rank == 0 ? "a" : "b");
  }
  /// Both ends of the slow link.
  bool shape_slow_link() const {
    bool shaped = true;
    for (Rank r = 0; r < 2; ++r)
      shaped = run("ip netns exec " + name(r) +
                   " tc qdisc add dev slow root tbf rate 10mbit burst 32k latency 400ms") &&
               shaped;
    return shaped;
  }
  std::vector<test::RankResult> join(const std::string& interface,
                                     const std::string& scenario = "interface.join") const {
    test::ProcessOptions options;
    options.args = {"10.90.1.1:4400", interface};
    options.prefix = [this](Rank r) {
      return std::vector<std::string>{"ip", "netns", "exec", name(r)};
    };
    return test::RankProcesses(2, scenario, options).wait_all();
  }

 private:
  bool ok_ = false;
};

const test::RegisterScenario kJoin("interface.join", [](const RankContext& c) {
  JoinOptions options;
  options.rank = c.rank;
  options.size = c.size;
  options.address = c.args.at(0);
  options.interface = c.args.at(1);
  options.timeout_s = 2;
  on_notice([](const std::string& text) { std::printf("reported: %s\n", text.c_str()); });
  const auto group = join_group(options);
  group->all_gather("t", "");
  return 0;
});

/// What the slow interface of this namespace has carried so far.
std::int64_t slow_bytes() {
  std::int64_t sum = 0;
  for (const char* direction : {"rx_bytes", "tx_bytes"}) {
    std::ifstream in(std::string("/sys/class/net/slow/statistics/") + direction);
    std::int64_t bytes = -1;
    if (!(in >> bytes)) return -1;
    sum += bytes;
  }
  return sum;
}

const test::RegisterScenario kAllToAll("interface.all_to_all", [](const RankContext& c) {
  const std::int64_t before = slow_bytes();
  JoinOptions options;
  options.rank = c.rank;
  options.size = c.size;
  options.address = c.args.at(0);
  options.timeout_s = 20;
  const auto comm = make_comm("tcp", options);
  const std::vector<std::int64_t> counts{5000000, 5000000};
  std::vector<std::uint8_t> in(10000000, static_cast<std::uint8_t>(c.rank + 1)), out(in.size());
  const auto begin = Clock::now();
  comm->all_to_all({0, 0}, {out.data(), 10000000, DType::u8}, {in.data(), 10000000, DType::u8},
                   counts, counts)
      .wait();
  const std::chrono::duration<double> took = Clock::now() - begin;
  if (out.front() != 1 || out.back() != 2) return 4;
  std::printf("took %.3f s, slow interface %lld bytes\n%s\n", took.count(),
              static_cast<long long>(before < 0 ? -1 : slow_bytes() - before),
              comm->membership()->describe().c_str());
  return 0;
});

TEST(KnownFailures, KF38_AnAllToAllTakesTheFastLink) {
  test::Watchdog watchdog;
  const TwoNamespaces net;
  if (!net.ok()) GTEST_SKIP() << "network namespaces cannot be made here (ip netns, as root)";
  if (!net.shape_slow_link()) GTEST_SKIP() << "this kernel cannot shape a link (tc, tbf)";
  for (const auto& result : net.join("", "interface.all_to_all")) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const auto number = [&](const std::string& key) {
      const auto at = result.output.find(key);
      return at == std::string::npos ? -1 : std::atof(result.output.c_str() + at + key.size());
    };
    EXPECT_GT(number("took "), 0) << result.output;
    EXPECT_LT(number("took "), 2.0) << result.output;
    EXPECT_GE(number("slow interface "), 0) << result.output;
    EXPECT_LT(number("slow interface "), 100000) << result.output;
    EXPECT_THAT(result.output, HasSubstr("interface fast"));
  }
}

TEST(KnownFailures, KF38_TheInterfaceThatRoutesToRank0) {
  test::Watchdog watchdog;
  const TwoNamespaces net;
  if (!net.ok()) GTEST_SKIP() << "network namespaces cannot be made here (ip netns, as root)";
  auto results = net.join("");
  for (Rank r = 0; r < 2; ++r) {
    const auto own = std::to_string(r + 1), peer = std::to_string(2 - r);
    EXPECT_EQ(results[r].exit_code, 0);
    EXPECT_THAT(results[r].output,
                AllOf(HasSubstr("reported: rank " + std::to_string(r) + " of 2: interface fast"),
                      HasSubstr("local address 10.90.1." + own), HasSubstr("10.90.1." + peer)));
  }
  results = net.join("slow");  // set by the user: obeyed
  for (Rank r = 0; r < 2; ++r) {
    const auto own = std::to_string(r + 1), peer = std::to_string(2 - r);
    EXPECT_EQ(results[r].exit_code, 0);
    EXPECT_THAT(results[r].output,
                AllOf(HasSubstr("interface slow"), HasSubstr("local address 10.90.2." + own),
                      HasSubstr("10.90.2." + peer)));
  }
  results = net.join("none0");
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, AllOf(HasSubstr("ConfigError"), HasSubstr("'none0'"),
                                     HasSubstr("fast (10.90.1."), HasSubstr("slow (10.90.2.")));
  }
}

}  // namespace
}  // namespace thinwire
