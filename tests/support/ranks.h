// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: threads of this process, or processes of their own that can be frozen and
// killed.
#pragma once
#include <sys/types.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire::test {

/// Runs fn(rank) in n threads, joins them, and returns what each rank threw (null: nothing).
std::vector<std::exception_ptr> errors_of_ranks(int n, const std::function<void(Rank)>& fn);
/// The same, and rethrows the error of the lowest rank that has one.
void ranks_as_threads(int n, const std::function<void(Rank)>& fn);
/// The text of an exception, after its kind: "CommError: rank 1 died"; empty for none.
std::string text_of(const std::exception_ptr& error);

/// What one rank process runs; the return value is its exit code. An exception prints
/// "CommError: ..." and exits with 2 for a ConfigError, else 1.
struct RankContext {
  Rank rank;
  int size;
  std::vector<std::string> args;
};
using Scenario = std::function<int(const RankContext&)>;
/// At namespace scope: `const RegisterScenario kDies("dies", [](const RankContext& c) {...});`
struct RegisterScenario {
  RegisterScenario(const std::string& name, Scenario run);
};

struct RankResult {
  int exit_code = -1;  ///< -1 while it runs, or when a signal ended it
  int signal = 0;      ///< the signal that ended it
  std::string output;  ///< stdout and stderr, in the order written
  double wall_s = 0;   ///< from its start to its end as seen here
  double cpu_s = 0;    ///< user and system time
};

struct ProcessOptions {
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;
  /// Put in front of the command of a rank, for example {"ip", "netns", "exec", "a"}.
  std::function<std::vector<std::string>(Rank)> prefix;
  bool start = true;  ///< start all at once; else call start(rank)
};

/// n processes of this test program, each running a registered scenario. One thread uses it. What
/// is still alive at the end is killed. Also good for measuring wall times.
class RankProcesses {
 public:
  RankProcesses(int n, const std::string& scenario, ProcessOptions options = {});
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void start(Rank rank);
  pid_t pid(Rank rank) const;
  void signal(Rank rank, int number);
  /// Waits until the rank's output holds `words`; false if it ends or the time is up before.
  bool wait_for(Rank rank, const std::string& words, double seconds = 20);
  /// Waits until the rank has ended; one that is still running then is killed, and fails the test.
  const RankResult& wait(Rank rank, double seconds = 20);
  /// All started ranks, in rank order; the time is that of all together.
  std::vector<RankResult> wait_all(double seconds = 20);
  /// What is known now.
  const RankResult& result(Rank rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Starts them all, waits for all.
std::vector<RankResult> ranks_as_processes(int n, const std::string& scenario,
                                           std::vector<std::string> args = {}, double seconds = 20);

/// For main(): true if this process is a rank; `exit_code` is then that of its scenario.
bool run_as_rank(int& exit_code);

}  // namespace thinwire::test
