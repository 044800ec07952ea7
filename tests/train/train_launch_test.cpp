// SPDX-License-Identifier: Apache-2.0
// KF-41: the ways in which a launched run ends. This program is its own launcher and its own ranks:
// `train_launch_test --launcher MODE` starts two ranks of `train_launch_test --rank MODE`, which
// take three steps over tcp.
#include "thinwire/train/launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/report/scratch.h"
#include "tests/support/ports.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/train/stop.h"

namespace thinwire {
namespace {

void append(const std::string& path, const std::string& line) {
  std::ofstream(path, std::ios::app) << line << std::endl;
}

/// One rank: notes its process and, on rank 0, each step in the file that TW_NOTES names.
int rank_main(const std::string& mode) {
  const StopSignals signals;
  const std::string notes = std::getenv("TW_NOTES");
  auto environment = launch_environment();
  if (!environment) return 99;
  environment->join.timeout_s = 20;
  const Rank rank = environment->join.rank;
  auto comm = make_comm("tcp", environment->join);
  append(notes, "pid " + std::to_string(getpid()));
  if (rank == 0)  // it accepts; a port from which another connects is no one's to bind again
    for (const int port : test::own_ports()) append(notes, "port " + std::to_string(port));
  for (int step = 0; step < 3; ++step) {
    double stop = StopSignals::received();
    comm->all_reduce({-1, step}, {&stop, 1, DType::f64}, Combine::max).wait();
    if (stop > 0) return 128 + static_cast<int>(stop);
    if (mode == "throw" && rank == 1 && step == 1) throw DataError("a test error on rank one");
    if (mode == "signal" && step == 1) {
      if (rank == 0) append(notes, "step 1");
      while (!StopSignals::received()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (mode == "killed" && step == 1) {
      if (rank == 0) append(notes, "step 1");
      pause();
    }
  }
  if (mode == "twice") comm->membership()->leave();
  comm->membership()->leave();
  return 0;
}

struct Ended {
  int code = -1;  // of the launcher; 256 + n when signal n ended it
  std::string errors;
  std::vector<pid_t> ranks;
};

std::string notes_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool wait_for(const std::string& path, const std::string& words, std::size_t times) {
  for (int i = 0; i < 2000; ++i) {
    const std::string text = notes_of(path);
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++found;
    if (found >= times) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// Whether no thread of a process runs any more. A zombie has ended (only its new parent has not
/// looked yet), but not before the last of its threads: until then its sockets are open.
bool gone(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::ifstream in(process + "/stat");
  std::string id, name, state;
  if (!(in >> id >> name >> state)) return true;
  if (state != "Z") return false;
  std::error_code left;  // the process can be taken away while it is looked at
  std::filesystem::directory_iterator threads(process + "/task", left);
  return left || std::distance(begin(threads), end(threads)) <= 1;
}

Ended run(const std::string& mode, int signal = 0) {
  const test::Scratch scratch;
  const std::string notes = scratch.file("notes"), errors = scratch.file("errors");
  const pid_t launcher = fork();
  if (launcher == 0) {
    setenv("TW_NOTES", notes.c_str(), 1);
    if (!std::freopen(errors.c_str(), "w", stderr)) _exit(98);
    execl("/proc/self/exe", "train_launch_test", "--launcher", mode.c_str(), nullptr);
    _exit(97);
  }
  if (signal) {
    EXPECT_TRUE(wait_for(notes, "step 1", 1));
    EXPECT_TRUE(wait_for(notes, "pid", 2));
    kill(launcher, signal);
  }
  int status = 0;
  waitpid(launcher, &status, 0);
  Ended ended;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  ended.errors = notes_of(errors);
  std::ifstream in(notes);
  std::set<int> ports;
  for (std::string word; in >> word;)
    if (word == "pid") {
      in >> word;
      ended.ranks.push_back(std::stoi(word));
    } else if (word == "port") {
      in >> word;
      ports.insert(std::stoi(word));
    }
  EXPECT_EQ(ended.ranks.size(), 2u);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (const pid_t pid : ended.ranks) {
    while (!gone(pid) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(gone(pid)) << "rank process " << pid << " is left after 3 s (" << mode << ")";
  }
  EXPECT_GE(ports.size(), 1u) << "rank 0 has sockets while it trains";
  for (const int port : ports)
    EXPECT_TRUE(test::can_bind(port)) << port << " cannot be bound again (" << mode << ")";
  EXPECT_EQ(ended.errors.find("signal 11"), std::string::npos) << ended.errors;
  EXPECT_EQ(ended.errors.find("signal 6"), std::string::npos) << ended.errors;
  return ended;
}

TEST(KnownFailures, KF41_i_MainReturns) {
  const test::Watchdog watchdog;
  EXPECT_EQ(run("plain").code, 0);
}
TEST(KnownFailures, KF41_ii_ExceptionLeavesMainOfRankOne) {
  const test::Watchdog watchdog;
  const Ended ended = run("throw");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.errors.find("thinwire: rank 1 failed"), std::string::npos) << ended.errors;
  EXPECT_NE(ended.errors.find("a test error on rank one"), std::string::npos) << ended.errors;
}
TEST(KnownFailures, KF41_iii_ShutdownTwice) {
  const test::Watchdog watchdog;
  EXPECT_EQ(run("twice").code, 0);
}
TEST(KnownFailures, KF41_iv_LauncherGetsSigint) {
  const test::Watchdog watchdog;
  EXPECT_EQ(run("signal", SIGINT).code, 130);
}
TEST(KnownFailures, KF41_v_LauncherGetsSigkill) {
  const test::Watchdog watchdog;
  EXPECT_EQ(run("killed", SIGKILL).code, 256 + SIGKILL);
}

TEST(Launch, NamesTheRankThatASignalEnded) {
  const test::Watchdog watchdog;
  const test::Scratch scratch;
  std::FILE* errors = std::fopen(scratch.file("errors").c_str(), "w+");
  const int code = launch(
      {.ranks = 2,
       .command = {"/bin/sh", "-c",
                   "[ $THINWIRE_RANK = 1 ] && kill -9 $$; sleep 30 & echo started $! >&2; wait"},
       .errors = errors});
  std::fclose(errors);
  EXPECT_EQ(code, 1);
  const std::string text = notes_of(scratch.file("errors"));
  EXPECT_NE(text.find("rank 1 was ended by signal 9"), std::string::npos) << text;
  const auto started = text.find("started ");
  ASSERT_NE(started, std::string::npos) << text;
  const pid_t worker = std::stoi(text.substr(started + 8));
  for (int i = 0; i < 100 && !gone(worker); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(gone(worker)) << "what rank 0 started is left";
}

TEST(Launch, LabelsOutputAndKeepsTheExitCodeOfAUsageError) {
  const test::Watchdog watchdog;
  const test::Scratch scratch;
  std::FILE* errors = std::fopen(scratch.file("errors").c_str(), "w+");
  const int code = launch(
      {.ranks = 2,
       .command = {"/bin/sh", "-c", "[ $THINWIRE_RANK = 1 ] && echo hello; echo wrong >&2; exit 2"},
       .errors = errors});
  std::fclose(errors);
  const std::string text = notes_of(scratch.file("errors"));
  EXPECT_EQ(code, 2);
  EXPECT_NE(text.find("[rank 1] hello\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[rank 0] wrong\n"), std::string::npos) << text;
}

TEST(Pin, OneCoreARankWhereThereAreEnough) {
  const int cores = available_cores();
  std::thread([&] {
    EXPECT_FALSE(pin_to_cores(0, 1));
    EXPECT_FALSE(pin_to_cores(0, cores + 1));
    if (cores < 2) return;
    EXPECT_TRUE(pin_to_cores(1, cores));
    EXPECT_EQ(available_cores(), 1);
  }).join();
  EXPECT_EQ(available_cores(), cores);
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--launcher") == 0)
    return thinwire::launch({.ranks = 2, .command = {"/proc/self/exe", "--rank", argv[2]}});
  if (argc == 3 && std::strcmp(argv[1], "--rank") == 0) {
    try {
      return thinwire::rank_main(argv[2]);
    } catch (const std::exception& error) {
      thinwire::report_failure(error);
      std::fprintf(stderr, "thinwire: %s\n", error.what());
      return 1;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
