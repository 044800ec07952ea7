// SPDX-License-Identifier: Apache-2.0
// Memberships over TCP: ranks that join, and those that should not be let in.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "tests/comm/joining.h"
#include "tests/support/comm_faults.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ports.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/version.h"

namespace thinwire {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in end{};
  end.sin_family = AF_INET;
  end.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  end.sin_port = htons(static_cast<std::uint16_t>(port));
  for (int i = 0; i < 500; ++i) {
    if (::connect(fd, reinterpret_cast<sockaddr*>(&end), sizeof end) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "cannot connect to " << at(port);
  return fd;
}

std::string temporary_file(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          (name + "." + std::to_string(::getpid()) + "." + std::to_string(free_port())))
      .string();
}

/// args: address, T, run id. Joins, meets the others, leaves.
const RegisterScenario kJoin("member.join", [](const RankContext& c) {
  const auto group = join_group(
      options_at(c.args.at(0), c.rank, c.size, std::atof(c.args.at(1).c_str()), c.args.at(2)));
  const auto runs = group->all_gather("meet", group->run_id());
  for (const auto& run : runs)
    if (run != group->run_id()) return 9;
  std::printf("joined %d of %d in %s\n", group->rank(), group->size(), group->run_id().c_str());
  group->leave();
  return 0;
});

std::vector<RankResult> join_processes(int n, const std::string& address, double timeout_s = kT,
                                       const std::string& run_id = "", int only = -1) {
  test::ProcessOptions options;
  options.args = {address, std::to_string(timeout_s), run_id};
  options.start = false;
  RankProcesses ranks(n, "member.join", options);
  for (Rank r = 0; r < (only < 0 ? n : only); ++r) ranks.start(r);
  return ranks.wait_all();
}

TEST(Membership, ThreadsOfOneProcessJoinOverTcp) {
  Watchdog watchdog;
  const auto address = at(free_port());
  test::ranks_as_threads(5, [&](Rank r) {
    const auto group = join_group(options_at(address, r, 5, 20, "r1"));
    EXPECT_EQ(group->run_id(), "r1");
    for (Rank other = 0; other < 5; ++other) EXPECT_EQ(group->address_of(other), "127.0.0.1");
    EXPECT_THAT(group->describe(), AllOf(HasSubstr("interface lo"), HasSubstr("127.0.0.1")));
    for (int round = 0; round < 50; ++round) {
      const auto blob = std::string(1000 * round, static_cast<char>('a' + r));
      const auto all = group->all_gather("t", blob);
      for (Rank other = 0; other < 5; ++other)
        ASSERT_EQ(all[other], std::string(1000 * round, static_cast<char>('a' + other)));
    }
    const auto errors = [&] { must_agree(*group, "seed", r == 3 ? "8" : "7"); };
    TW_EXPECT_THROW(errors(), ConfigError,
                    "seed differs between ranks: rank 0 has 7, rank 3 has 8");
    group->all_gather("end", "");
  });
}

TEST(Membership, OverIpv6AndByFileAndWithPorts) {
  Watchdog watchdog;
  const auto address = "[::1]:" + std::to_string(free_port());
  test::ranks_as_threads(3, [&](Rank r) {
    const auto group = join_group(options_at(address, r, 3, 20));
    EXPECT_EQ(group->address_of(1), "::1");
    group->all_gather("t", "");
  });
  const auto file = "file:" + temporary_file("thinwire-rendezvous");
  test::ranks_as_threads(3, [&](Rank r) {
    auto options = options_at(file, r, 3, 20);
    options.port_first = 42000;
    options.port_last = 42050;
    options.interface = "lo";
    const auto group = join_group(options);
    EXPECT_EQ(group->address_of(0), "127.0.0.1");
    group->all_gather("t", "");
  });
  EXPECT_FALSE(std::filesystem::exists(file.substr(5)));
}

TEST(Membership, AnInterfaceThatIsNotThereIsRefused) {
  auto options = options_at(at(free_port()), 1, 2);
  options.interface = "tw-none";
  TW_EXPECT_THROW(join_group(options), ConfigError, "interface 'tw-none' is not there");
  TW_EXPECT_THROW(join_group(options), ConfigError, "lo (127.0.0.1");
}

TEST(Membership, WrongOptionsAreRefused) {
  TW_EXPECT_THROW(join_group(options_at("nowhere", 0, 2)), ConfigError, "HOST:PORT");
  TW_EXPECT_THROW(join_group(options_at("h:70000", 0, 2)), ConfigError, "1..65535");
  TW_EXPECT_THROW(join_group(options_at("::1:70", 0, 2)), ConfigError, "brackets");
  TW_EXPECT_THROW(join_group(options_at("h:1", 2, 2)), ConfigError, "rank must be in 0..1, got 2");
  TW_EXPECT_THROW(join_group(options_at("", 0, 2)), ConfigError, "an address is needed");
  TW_EXPECT_THROW(join_group(options_at("h:1", 0, 2, 0)), ConfigError, "timeout_s");
}

std::vector<std::string> texts_of_join(std::vector<JoinOptions> each) {
  std::vector<std::string> texts;
  const auto errors =
      test::errors_of_ranks(static_cast<int>(each.size()), [&](Rank r) { join_group(each[r]); });
  for (const auto& error : errors) texts.push_back(test::text_of(error));
  return texts;
}

TEST(Membership, RanksThatDisagreeAreRefusedOnAllSides) {
  Watchdog watchdog;
  auto address = at(free_port());
  auto sizes = texts_of_join({options_at(address, 0, 3, 20), options_at(address, 1, 2, 20)});
  for (const auto& text : sizes)
    EXPECT_THAT(text, AllOf(HasSubstr("ConfigError"), HasSubstr("group size"),
                            HasSubstr("rank 0 has 3"), HasSubstr("rank 1 has 2")));
  address = at(free_port());
  std::vector<JoinOptions> versions{options_at(address, 0, 2, 20), options_at(address, 1, 2, 20)};
  versions[1].version = "9.9";
  for (const auto& text : texts_of_join(versions))
    EXPECT_THAT(text, AllOf(HasSubstr("ConfigError"), HasSubstr("version"), HasSubstr("9.9"),
                            HasSubstr("0.1.0")));
  address = at(free_port());
  for (const auto& text :
       texts_of_join({options_at(address, 0, 3, 20), options_at(address, 1, 3, 20),
                      options_at(address, 1, 3, 20)}))
    EXPECT_THAT(text, AllOf(HasSubstr("ConfigError"), HasSubstr("rank 1"), HasSubstr("twice")));
  address = at(free_port());
  for (const auto& text :
       texts_of_join({options_at(address, 0, 2, kT, "A"), options_at(address, 1, 2, kT, "B")}))
    EXPECT_THAT(text, AllOf(HasSubstr("ConfigError"), HasSubstr("'A'"), HasSubstr("'B'")));
}

TEST(Membership, StrangersDoNoHarm) {
  Watchdog watchdog;
  const int port = free_port();
  const auto address = at(port);
  std::vector<int> fds;
  const auto errors = test::errors_of_ranks(3, [&](Rank r) {
    if (r == 2) {
      const auto knock = [&](const std::string& bytes) {
        fds.push_back(connect_to(port));
        ::send(fds.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      };
      const auto frame = [](const std::string& json, std::uint32_t blob = 0) {
        const std::uint32_t head[4]{0x01435754, 1, static_cast<std::uint32_t>(json.size()), blob};
        return std::string(reinterpret_cast<const char*>(head), sizeof head) + json;
      };
      knock("");
      knock("GET / HTTP/1.1\r\n\r\n and a good deal more than sixteen bytes");
      knock(frame("{\"purpose\": 7, \"rank\": \"x\", \"size\": []}"));
      knock(frame("[[[[[[[["));
      knock(frame("{}", 0xffffffff));
      knock(std::string("TWC\1\1\0\0\0\xff\xff\xff\xff\0\0\0\0", 16));
      knock(frame("{\"purpose\": \"mesh\", \"rank\": 1}").substr(0, 20));
      return;
    }
    if (r == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // strangers come first
    const auto group = join_group(options_at(address, r, 2, 20));
    group->all_gather("t", "");
    if (r == 0) {
      fds.push_back(connect_to(port));  // and once more while the group is at work
      ::send(fds.back(), "garbage garbage garbage", 23, MSG_NOSIGNAL);
    }
    group->all_gather("u", "");
  });
  for (const auto& error : errors) EXPECT_EQ(test::text_of(error), "");
  for (const int fd : fds) ::close(fd);
}

/// A rank of the group that goes mad after a proper hand-shake: the others end with an error.
TEST(Membership, MadMessagesOfARankEndTheGroupInWords) {
  Watchdog watchdog;
  const auto message = [](std::uint32_t type, const std::string& json) {
    const std::uint32_t head[4]{0x01435754, type, static_cast<std::uint32_t>(json.size()), 0};
    return std::string(reinterpret_cast<const char*>(head), sizeof head) + json;
  };
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  for (const std::string& mad :
       {message(9, R"({"text": "x", "config": false, "rank": )" + deep + "}"), message(9, deep),
        message(9, R"({"text": "x", "config": false, "rank": 7})"),
        message(8, R"({"round": 1e300, "topic": "t"})"), message(7, R"({"kind": 99})")}) {
    const int port = free_port();
    const auto errors = test::errors_of_ranks(2, [&](Rank r) {
      if (r == 0) {
        join_group(options_at(at(port), 0, 2, 20, "mad"))->all_gather("t", "");
        return;
      }
      const int fd = connect_to(port);
      const auto say = [fd](const std::string& bytes) {
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      };
      say(message(1, R"({"purpose": "join", "protocol": 1, "run_id": "mad", "version": ")" +
                         std::string(kWireVersion) + R"(", "size": 2, "rank": 1, "port": 1})"));
      std::string got;
      for (bool ready = false; got.find(std::string("TWC\1\6", 5)) == std::string::npos;) {
        char buffer[4096];
        const auto n = ::recv(fd, buffer, sizeof buffer, 0);
        ASSERT_GT(n, 0);
        got.append(buffer, static_cast<std::size_t>(n));
        if (!ready && got.find("token") != std::string::npos) say(message(5, "{}"));
        ready = ready || got.find("token") != std::string::npos;
      }
      say(mad);
      char ignored[4096];
      while (::recv(fd, ignored, sizeof ignored, 0) > 0) {
      }
      ::close(fd);
    });
    EXPECT_EQ(test::text_of(errors[1]), "");
    EXPECT_THAT(test::text_of(errors[0]),
                AllOf(HasSubstr("CommError"), HasSubstr("rank 1"), HasSubstr("cannot be read")));
  }
}

TEST(KnownFailures, KF31_OneJobStaysOne) {
  Watchdog watchdog;
  RankProcesses ranks(4, "member.join", {.args = {at(free_port()), "20", ""}, .start = false});
  ranks.start(0);
  ranks.start(1);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_THAT(ranks.result(0).output, Not(HasSubstr("joined")));
  ranks.start(2);
  ranks.start(3);
  const auto results = ranks.wait_all();
  const auto run = results[0].output.substr(results[0].output.find(" in "));
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_EQ(results[r].exit_code, 0) << results[r].output;
    EXPECT_THAT(results[r].output, HasSubstr("joined " + std::to_string(r) + " of 4" + run));
  }
}

TEST(KnownFailures, KF35_ARankThatDoesNotCome) {  // (i)
  Watchdog watchdog;
  const auto address = at(free_port());
  const auto results = join_processes(3, address, kT, "", 2);
  for (Rank r = 0; r < 2; ++r) {
    EXPECT_EQ(results[r].exit_code, 1);
    EXPECT_LT(results[r].wall_s, kT + 1 + test::late_s());
    EXPECT_THAT(results[r].output, AllOf(HasSubstr("CommError"), HasSubstr("2 of 3"),
                                         HasSubstr("rank 2"), HasSubstr(address)));
  }
}

TEST(KnownFailures, KF35_AMutePeer) {  // (ii) and (iii), with rank 0 real
  Watchdog watchdog;
  const std::string half = std::string("TWC\1\1\0\0\0", 8);
  for (const auto& bytes : {std::string(), half}) {
    const int port = free_port();
    int fd = -1;
    const auto start = Clock::now();
    const auto errors = test::errors_of_ranks(2, [&](Rank r) {
      if (r == 0) join_group(options_at(at(port), 0, 2));
      if (r == 1) {
        fd = connect_to(port);
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
    });
    EXPECT_LT(test::seconds_since(start), kT + 1 + test::late_s());
    sockaddr_in own{};
    socklen_t size = sizeof own;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
    EXPECT_THAT(test::text_of(errors[0]),
                AllOf(HasSubstr("CommError"), HasSubstr("rank 1"),
                      HasSubstr(at(ntohs(own.sin_port)) + " connected"), HasSubstr("hand-shake"),
                      HasSubstr("after " + std::to_string(bytes.size()) + " bytes")));
    ::close(fd);
  }
}

TEST(KnownFailures, KF35_AMuteListener) {  // (ii), a rank whose own listener accepts and is silent
  Watchdog watchdog;
  for (const double more : {0.0, 1.0}) {  // rank 2's own time is up with rank 0's, or after it
    SCOPED_TRACE(more);
    const Listener mute;
    const int port = free_port();
    const auto start = Clock::now();
    const auto errors = test::errors_of_ranks(3, [&](Rank r) {
      if (r != 1) join_group(options_at(at(port), r, 3, r == 0 ? kT : kT + more));
      if (r != 1) return;
      const std::string hello =
          "{\"purpose\":\"join\",\"protocol\":1,\"run_id\":\"\",\"version\":\"" +
          std::string(kWireVersion) +
          "\",\"size\":3,\"rank\":1,\"port\":" + std::to_string(mute.port) + "}";
      const std::uint32_t head[4]{0x01435754, 1, static_cast<std::uint32_t>(hello.size()), 0};
      const int fd = connect_to(port);
      ::send(fd, head, sizeof head, MSG_NOSIGNAL);
      ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
      char buffer[4096];
      while (::recv(fd, buffer, sizeof buffer, 0) > 0) {
      }
      ::close(fd);
    });
    EXPECT_LT(test::seconds_since(start), kT + 1 + test::late_s());
    EXPECT_THAT(test::text_of(errors[2]), AllOf(HasSubstr("CommError"), HasSubstr("rank 1"),
                                                HasSubstr(at(mute.port)), HasSubstr("hand-shake")));
    EXPECT_THAT(test::text_of(errors[0]),
                AllOf(HasSubstr("CommError"), HasSubstr("rank 1"), HasSubstr("hand-shake")));
  }
}

TEST(KnownFailures, KF39_AForeignProcessHoldsThePort) {  // (i)
  Watchdog watchdog;
  const Listener foreign;
  const auto results = join_processes(2, at(foreign.port));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_LT(result.wall_s, kT + 1 + test::late_s());
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("CommError"), HasSubstr("127.0.0.1"),
                      HasSubstr(std::to_string(foreign.port)), HasSubstr("listen for rendezvous"),
                      HasSubstr("process " + std::to_string(::getpid()))));
  }
}

/// args: address. Rank 0 and 1 of run "first" meet again and again until they are told to end.
const RegisterScenario kStay("member.stay", [](const RankContext& c) {
  const auto group = join_group(options_at(c.args.at(0), c.rank, c.size, 20, "first"));
  std::printf("joined\n");
  for (const int port : test::own_ports()) std::printf("port %d\n", port);
  for (int i = 0; i < 100; ++i) {
    group->all_gather("stay", "");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::printf("undisturbed\n");
  return 0;
});

TEST(KnownFailures, KF39_AnotherRunHoldsThePort) {  // (ii)
  Watchdog watchdog;
  const auto address = at(free_port());
  RankProcesses first(2, "member.stay", {.args = {address}});
  ASSERT_TRUE(first.wait_for(0, "joined") && first.wait_for(1, "joined"));
  for (const auto& result : join_processes(2, address, kT, "second")) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_LT(result.wall_s, kT + 1 + test::late_s());
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("ConfigError"), HasSubstr("'first'"), HasSubstr("'second'")));
  }
  for (const auto& result : first.wait_all()) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("undisturbed"));
  }
}

TEST(KnownFailures, KF39_TwoRunsWithThePortLeftOpen) {  // (iii)
  Watchdog watchdog;
  std::vector<std::unique_ptr<RankProcesses>> runs;
  for (int i = 0; i < 2; ++i)
    runs.push_back(std::make_unique<RankProcesses>(
        2, "member.stay",
        test::ProcessOptions{.args = {"file:" + temporary_file("thinwire-kf39")}}));
  std::set<std::string> ports;
  std::size_t told = 0;
  for (auto& run : runs)
    for (const auto& result : run->wait_all()) {
      EXPECT_EQ(result.exit_code, 0) << result.output;
      std::istringstream lines(result.output);
      for (std::string line; std::getline(lines, line);)
        if (line.starts_with("port ")) {
          ports.insert(line);
          ++told;
        }
    }
  EXPECT_GE(told, 4u);
  EXPECT_EQ(ports.size(), told) << "no port is open twice, within a run or between both";
}

TEST(KnownFailures, KF44_SixteenRanksStartLateLast) {  // the joining of it
  Watchdog watchdog("KF44", 60);
  for (int repetition = 0; repetition < 3; ++repetition) {
    RankProcesses ranks(16, "member.join", {.args = {at(free_port()), "20", ""}, .start = false});
    for (Rank r = 15; r >= 0; --r) {
      ranks.start(r);
      if (r > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const auto last = Clock::now();
    for (const auto& result : ranks.wait_all()) EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_LT(test::seconds_since(last), 10 + test::late_s());
  }
}

}  // namespace
}  // namespace thinwire
