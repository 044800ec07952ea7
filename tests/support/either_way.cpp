// SPDX-License-Identifier: Apache-2.0
#include "tests/support/either_way.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "tests/support/ranks.h"
#include "thinwire/comm/membership.h"

namespace thinwire::test {
namespace {

constexpr char kScenario[] = "support.test_again";
constexpr char kBegins[] = "\n[rank begins]\n";
constexpr char kThrew[] = "\n[rank threw]\n";
constexpr int kFailed = 3, kNotReached = 4;
constexpr double kMeeting_s = 25;  ///< processes start seconds apart where the machine is busy

/// Set in a rank process: which call of the test it is there for, and where ranks meet.
struct Again {
  RankContext context;
  int call;
  std::string address;
};
const Again* again = nullptr;

std::string current_test() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

/// The number of this call of run_ranks in the current test.
int next_call() {
  static std::string test;
  static int calls = 0;
  if (const std::string now = current_test(); now != test) {
    test = now;
    calls = 0;
  }
  return calls++;
}

void run_one(const RankBody& body, Comm& world, double timeout_s) {
  const auto begin = Clock::now();
  try {
    body(world);
  } catch (const std::exception& error) {
    const double took_s = std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_LE(took_s, timeout_s + 1) << "the error came late: " << error.what();
    throw;
  }
}

std::vector<std::string> as_threads(int n, const RankBody& body, double timeout_s,
                                    const std::string& decorators) {
  auto comms = make_local(n, timeout_s, decorators + "local");
  const auto errors = errors_of_ranks(
      n, [&](Rank rank) { run_one(body, *comms[static_cast<std::size_t>(rank)], timeout_s); });
  std::vector<std::string> texts;
  for (const auto& error : errors) texts.push_back(text_of(error));
  return texts;
}

int failures() {
  const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int count = 0;
  for (int i = 0; i < result.total_part_count(); ++i)
    count += result.GetTestPartResult(i).failed() ? 1 : 0;
  return count;
}

/// In a rank process, for the call it is there for: runs the body and ends the process.
[[noreturn]] void be_a_rank(const RankBody& body, double timeout_s, const std::string& decorators) {
  std::printf("%s", kBegins);
  const int before = failures();
  std::string text;
  try {
    JoinOptions join{.rank = again->context.rank,
                     .size = again->context.size,
                     .address = again->address + ".meeting",
                     .timeout_s = kMeeting_s};
    make_comm("tcp", join)->barrier("all processes have started");
    join.address = again->address;
    join.timeout_s = timeout_s;
    const auto world = make_comm(decorators + "tcp", join);
    run_one(body, *world, timeout_s);
  } catch (...) {
    text = text_of(std::current_exception());
  }
  if (!text.empty()) std::printf("%s%s", kThrew, text.c_str());
  std::fflush(nullptr);
  ::_exit(failures() > before ? kFailed : 0);
}

const RegisterScenario kTestAgain(kScenario, [](const RankContext& context) {
  const Again mine{context, std::stoi(context.args.at(1)), context.args.at(2)};
  again = &mine;
  std::string name = "rank";
  char* arguments[] = {name.data(), nullptr};
  int count = 1;
  ::testing::InitGoogleTest(&count, arguments);
  ::testing::GTEST_FLAG(filter) = context.args.at(0);
  [[maybe_unused]] const int ignored = RUN_ALL_TESTS();
  return kNotReached;
});

std::vector<std::string> as_processes(int n, int call, double timeout_s) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("thinwire_ranks_" + std::to_string(::getpid()) + "_" + std::to_string(call));
  std::filesystem::create_directories(folder);
  const auto results = ranks_as_processes(
      n, kScenario, {current_test(), std::to_string(call), "file:" + (folder / "address").string()},
      kMeeting_s + timeout_s);
  std::filesystem::remove_all(folder);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const RankResult& result = results[rank];
    const auto begin = result.output.find(kBegins);
    if (result.exit_code != 0 || begin == std::string::npos)
      ADD_FAILURE() << "rank process " << rank << " ended with " << result.exit_code
                    << (result.signal ? ", signal " + std::to_string(result.signal) : "")
                    << "; its output:\n"
                    << result.output.substr(begin == std::string::npos ? 0 : begin);
    const auto threw = result.output.find(kThrew);
    texts.push_back(threw == std::string::npos ? ""
                                               : result.output.substr(threw + sizeof kThrew - 1));
  }
  return texts;
}

}  // namespace

std::vector<std::string> run_ranks(RanksAre how, int n, const RankBody& body, double timeout_s,
                                   const std::string& decorators) {
  if (how == RanksAre::threads) return as_threads(n, body, timeout_s, decorators);
  const int call = next_call();
  if (!again) return as_processes(n, call, timeout_s);
  if (call != again->call) return std::vector<std::string>(static_cast<std::size_t>(n));
  be_a_rank(body, timeout_s, decorators);
}

}  // namespace thinwire::test
