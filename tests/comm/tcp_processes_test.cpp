// SPDX-License-Identifier: Apache-2.0
// The known failures that need processes: ranks that die, freeze, start late and run ahead.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/support/comm_faults.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

/// A fresh meeting point; rank 0 writes its address there.
std::string meeting(const std::string& name) {
  static int count = 0;
  const auto path =
      std::filesystem::temp_directory_path() /
      ("thinwire_" + name + std::to_string(::getpid()) + "_" + std::to_string(count++));
  std::filesystem::remove(path);
  return "file:" + path.string();
}

std::unique_ptr<Comm> join(const std::string& address, Rank rank, int size, Seconds timeout_s,
                           const std::string& transport = "tcp") {
  JoinOptions options;
  options.rank = rank;
  options.size = size;
  options.address = address;
  options.timeout_s = timeout_s;
  return make_comm(transport, options);
}

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double wall_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// The number printed behind `key`, or -1.
double number_after(const std::string& text, const std::string& key) {
  const auto at = text.find(key);
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + key.size());
}

// args: address, elements, how rank `victim` ends ("kill" or "exit"), T, first victim
const RegisterScenario kDies("tcp.dies", [](const RankContext& c) {
  auto comm = join(c.args.at(0), c.rank, c.size, std::atof(c.args.at(3).c_str()));
  const auto count = static_cast<std::size_t>(std::atoi(c.args.at(1).c_str()));
  std::vector<float> a(count, 1), b(count, 1);
  const int last = std::atoi(c.args.at(5).c_str());
  const bool victim = c.rank == std::atoi(c.args.at(4).c_str());
  try {
    for (int i = 0; i < 100; ++i) {
      if (victim && i == last && c.args.at(2) == "kill") {
        std::printf("end at %.6f\n", wall_s());
        std::fflush(stdout);
        ::raise(SIGKILL);
      }
      if (victim && i == last && c.args.at(2) == "exit") {
        std::printf("end at %.6f\n", wall_s());
        std::fflush(stdout);
        ::_exit(0);  // the system closes the sockets in order; nobody says farewell
      }
      const Handle first = all_reduce_of(*comm, a, {0, i}),
                   second = all_reduce_of(*comm, b, {1, i});
      auto other = std::async(std::launch::async, [second] { second.wait(); });
      try {
        first.wait();
      } catch (const CommError&) {
        // The wait of the other thread ends with it.
        EXPECT_THROW(other.get(), CommError);
        throw;
      }
      other.get();
    }
  } catch (const CommError& error) {
    std::printf("error at %.6f: %s\n", wall_s(), error.what());
    try {
      all_reduce_of(*comm, a, {0, 500}).wait();
    } catch (const CommError& later) {
      const std::string fault = comm->membership()->fault()->text;
      if (std::string(later.what()).find(fault) != std::string::npos)
        std::printf("later calls say the same\n");
    }
    return ::testing::Test::HasFailure() ? 5 : 0;
  }
  return 3;
});

void rank_dies(const std::string& how) {
  const Watchdog watchdog("KF-34 " + how);
  const auto results =
      ranks_as_processes(5, "tcp.dies", {meeting("dies"), "1000000", how, "60", "1", "10"}, 28);
  const double end = number_after(results[1].output, "end at ");
  for (const Rank rank : {0, 2, 3, 4}) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_names(result.output,
                 {"rank 1", "all_reduce", "exchange", "step 10", "later calls say the same"});
    EXPECT_LT(number_after(result.output, "error at ") - end, 1.0 + late_s());
  }
}
TEST(KnownFailures, KF34_RankDies) { rank_dies("kill"); }
TEST(KnownFailures, KF34_RankExitsWithoutLeaving) { rank_dies("exit"); }

const RegisterScenario kFreezes("tcp.freezes", [](const RankContext& c) {
  auto comm = join(c.args.at(0), c.rank, c.size, 2);
  std::vector<float> data(4000000);
  double cpu = 0, wall = 0;
  try {
    for (int i = 0; i < 8; ++i) {
      std::fill(data.begin(), data.end(), static_cast<float>(c.rank + i));
      if (i == 5) {
        std::printf("at five %.6f\n", wall_s());
        std::fflush(stdout);
        if (c.rank == 2) ::raise(SIGSTOP);
        cpu = cpu_s();
        wall = wall_s();
      }
      all_reduce_of(*comm, data, {0, i}).wait();
      for (const float x : data)
        if (x != static_cast<float>(3 + 3 * i)) return 4;
    }
  } catch (const CommError& error) {
    std::printf("cpu %.3f wall %.3f error: %s\n", cpu_s() - cpu, wall_s() - wall, error.what());
    return 0;
  }
  std::printf("all right\n");
  return 0;
});

TEST(KnownFailures, KF36_AFrozenRank) {
  const Watchdog watchdog("KF-36 (i)");
  RankProcesses ranks(3, "tcp.freezes", {.args = {meeting("freezes")}});
  for (const Rank rank : {0, 1}) {
    const RankResult& result = ranks.wait(rank, 20);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_names(result.output, {"error", "rank 2", "all_reduce", "step 5", "last sign of life"});
    const double waited = number_after(result.output, "wall ");
    EXPECT_LT(waited, 3.0 + late_s()) << result.output;
    // Half of the work of a step is done before the wait; what a core would burn is 2 s.
    EXPECT_LT(number_after(result.output, "cpu "), 0.2 * waited) << result.output;
  }
  ranks.signal(2, SIGKILL);
}

TEST(KnownFailures, KF36_AFrozenRankThatThaws) {
  const Watchdog watchdog("KF-36 (ii)");
  RankProcesses ranks(3, "tcp.freezes", {.args = {meeting("thaws")}});
  ASSERT_TRUE(ranks.wait_for(2, "at five"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ranks.signal(2, SIGCONT);
  for (const RankResult& result : ranks.wait_all(25)) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_names(result.output, {"all right"});
  }
}

// args: address, elements of rank 0 and of rank 1, seconds that rank 1 sleeps before step 4
const RegisterScenario kMismatch("tcp.mismatch", [](const RankContext& c) {
  auto comm = join(c.args.at(0), c.rank, c.size, 2);
  double fault_at = 0;
  try {
    std::vector<float> before(1000), data(std::stoul(c.args.at(c.rank == 0 ? 1 : 2)));
    for (int step = 0; step < 4; ++step) all_reduce_of(*comm, before, {2, step}).wait();
    fault_at = wall_s();
    if (c.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(std::stoi(c.args.at(3))));
    all_reduce_of(*comm, data, {2, 4}).wait();
    return 3;
  } catch (const CommError& error) {
    std::printf("after %.3f s: %s\n", wall_s() - fault_at, error.what());
  }
  return 0;
});

TEST(KnownFailures, KF37_SizeMismatchOverProcesses) {
  const Watchdog watchdog("KF-37 (i)");
  for (const RankResult& result :
       ranks_as_processes(2, "tcp.mismatch", {meeting("mismatch"), "1000", "999", "0"})) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_names(result.output, {"all_reduce", "exchange 2", "rank 0", "4000", "rank 1", "3996"});
    EXPECT_LT(number_after(result.output, "after "), 3.0 + late_s());
  }
}

TEST(KnownFailures, KF37_LateRankOverProcesses) {
  const Watchdog watchdog("KF-37 (ii)");
  const auto results =
      ranks_as_processes(2, "tcp.mismatch", {meeting("late"), "1000", "1000", "10"});
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
  expect_names(results[0].output, {"all_reduce", "step 4", "exchange 2", "4000", "rank 0 (local)",
                                   "rank 1 (missing)", "2.0 s"});
  EXPECT_LT(number_after(results[0].output, "after "), 3.0 + late_s());
  EXPECT_EQ(results[1].exit_code, 0) << results[1].output;  // it finds the group ended
}

const RegisterScenario kLeavesOut("tcp.leaves_out", [](const RankContext& c) {
  auto comm = join(c.args.at(0), c.rank, c.size, 2);
  double last = 0;
  try {
    std::vector<float> data(1000);
    for (int step = 0; step < 6; ++step) {
      data.assign(data.size(), static_cast<float>(step));
      last = wall_s();
      if (c.rank != 1 || step != 2) all_reduce_of(*comm, data, {0, step}).wait();
      if (c.rank != 1 && step >= 2) return 4;  // a message of step 3 was used for step 2
    }
    return 3;
  } catch (const CommError& error) {
    std::printf("after %.3f s: %s\n", wall_s() - last, error.what());
  }
  return 0;
});

TEST(KnownFailures, KF42_LeftOutExchangeOverProcesses) {
  const Watchdog watchdog("KF-42");
  for (const RankResult& result :
       ranks_as_processes(3, "tcp.leaves_out", {meeting("leaves_out")})) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_names(result.output, {"exchange 0", "step 2", "rank 1"});
    EXPECT_LT(number_after(result.output, "after "), 3.0 + late_s());
  }
}

// Ranks 2 and 3 kill themselves; 0 and 1 build a new group and go on. args: two addresses
const RegisterScenario kSurvives("tcp.survives", [](const RankContext& c) {
  auto comm = join(c.args.at(0), c.rank, c.size, 60);
  std::vector<float> data(100000, static_cast<float>(c.rank));
  try {
    for (int i = 0; i < 100; ++i) {
      if (i == 5 && c.rank >= 2) {
        std::printf("end at %.6f\n", wall_s());
        std::fflush(stdout);
        if (c.rank == 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ::raise(SIGKILL);
      }
      all_reduce_of(*comm, data, {0, i}).wait();
    }
    return 3;
  } catch (const CommError& error) {
    std::printf("error at %.6f: %s\n", wall_s(), error.what());
  }
  comm.reset();
  comm = join(c.args.at(1), c.rank, 2, 20);
  for (int i = 0; i < 3; ++i) {
    data.assign(100000, static_cast<float>(c.rank + i));
    all_reduce_of(*comm, data, {0, i}).wait();
    for (const float x : data)
      if (x != static_cast<float>(1 + 2 * i)) return 4;
  }
  std::printf("three more\n");
  return 0;
});

TEST(KnownFailures, KF40_SurvivorsLiveOn) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Watchdog watchdog("KF-40");
    const auto results =
        ranks_as_processes(4, "tcp.survives", {meeting("survive"), meeting("again")}, 20);
    const double end = std::min(number_after(results[2].output, "end at "),
                                number_after(results[3].output, "end at "));
    for (const Rank rank : {0, 1}) {
      const RankResult& result = results[static_cast<std::size_t>(rank)];
      ASSERT_EQ(result.signal, 0) << result.output;
      ASSERT_EQ(result.exit_code, 0) << result.output;
      expect_names(result.output, {"error at", "three more"});
      EXPECT_TRUE(result.output.find("rank 2") != std::string::npos ||
                  result.output.find("rank 3") != std::string::npos)
          << result.output;
      EXPECT_LT(number_after(result.output, "error at ") - end, 1.0 + late_s());
    }
  }
}

const RegisterScenario kSizes("tcp.sizes", [](const RankContext& c) {
  for (std::size_t k = 1; k < c.args.size(); ++k) {
    const auto comm = join(c.args.at(0) + std::to_string(k), c.rank, c.size, 10, c.args[k]);
    for (const std::size_t count : {0, 1, 2, 7, 8, 1000}) {
      std::vector<float> data(count, static_cast<float>(c.rank + 1));
      all_reduce_of(*comm, data, {0, static_cast<int>(count)}).wait();
      for (const float x : data)
        if (x != static_cast<float>(c.size * (c.size + 1) / 2)) return 4;
    }
  }
  return 0;
});

TEST(KnownFailures, KF43_FiveProcesses) {
  const Watchdog watchdog("KF-43");
  for (const RankResult& result : ranks_as_processes(
           5, "tcp.sizes",
           {meeting("sizes"), "tcp", "tcp{algorithm=shard}", "tcp{algorithm=gather}"}, 20))
    EXPECT_EQ(result.exit_code, 0) << result.output;
}

// args: address. Rank r starts 50 (15 - r) ms late and sends as soon as it has joined.
const RegisterScenario kStarts("tcp.starts", [](const RankContext& c) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50 * (c.size - 1 - c.rank)));
  const auto comm = join(c.args.at(0), c.rank, c.size, 20);
  struct Message {
    std::int64_t sender, receiver, sequence, rest[5];
  };
  std::vector<Message> out(static_cast<std::size_t>(c.size)), in(out.size());
  std::vector<Handle> handles;
  for (Rank r = 0; r < c.size; ++r) {
    if (r == c.rank) continue;
    out[static_cast<std::size_t>(r)] = {c.rank, r, 100 * c.rank + r, {}};
    handles.push_back(comm->send({1, 0}, {&out[static_cast<std::size_t>(r)], 64, DType::u8}, r));
  }
  for (Rank r = 0; r < c.size; ++r)
    if (r != c.rank)
      handles.push_back(
          comm->recv({1, 0}, {&in[static_cast<std::size_t>(r)], 64, DType::u8}, std::nullopt));
  for (const Handle& handle : handles) handle.wait();
  std::vector<int> seen(in.size());
  for (Rank r = 0; r < c.size; ++r) {
    if (r == c.rank) continue;
    const Message& m = in[static_cast<std::size_t>(r)];
    if (m.receiver != c.rank || m.sequence != 100 * m.sender + c.rank) return 4;
    ++seen.at(static_cast<std::size_t>(m.sender));
  }
  for (Rank r = 0; r < c.size; ++r)
    if (seen[static_cast<std::size_t>(r)] != (r == c.rank ? 0 : 1)) return 5;
  return 0;
});

TEST(KnownFailures, KF44_NoMessageIsLostAtStart) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Watchdog watchdog("KF-44");
    for (const RankResult& result : ranks_as_processes(16, "tcp.starts", {meeting("starts")}, 10))
      ASSERT_EQ(result.exit_code, 0) << result.output;
  }
}

}  // namespace
}  // namespace thinwire::test
