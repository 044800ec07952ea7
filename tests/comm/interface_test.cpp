// SPDX-License-Identifier: Apache-2.0
// Which interface a group uses, in two network namespaces that are joined by two links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"

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
  std::vector<test::RankResult> join(const std::string& interface) const {
    test::ProcessOptions options;
    options.args = {"10.90.1.1:4400", interface};
    options.prefix = [this](Rank r) {
      return std::vector<std::string>{"ip", "netns", "exec", name(r)};
    };
    return test::RankProcesses(2, "interface.join", options).wait_all();
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
  const auto group = join_group(options);
  group->all_gather("t", "");
  std::printf("%s\n", group->describe().c_str());
  return 0;
});

TEST(KnownFailures, KF38_TheInterfaceThatRoutesToRank0) {
  test::Watchdog watchdog;
  const TwoNamespaces net;
  if (!net.ok()) GTEST_SKIP() << "network namespaces cannot be made here (ip netns, as root)";
  auto results = net.join("");
  for (Rank r = 0; r < 2; ++r) {
    const auto own = std::to_string(r + 1), peer = std::to_string(2 - r);
    EXPECT_EQ(results[r].exit_code, 0);
    EXPECT_THAT(results[r].output,
                AllOf(HasSubstr("interface fast"), HasSubstr("local address 10.90.1." + own),
                      HasSubstr("10.90.1." + peer)));
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
