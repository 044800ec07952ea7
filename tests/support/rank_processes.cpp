// SPDX-License-Identifier: Apache-2.0
// Rank processes are this program again, told by the environment which scenario to run. One poll
// over their output and their process descriptors does all the waiting.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
extern "C" {  // glibc 2.36 forgets it
#include <sys/pidfd.h>
}
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/support/ranks.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire::test {
namespace {

constexpr char kScenario[] = "THINWIRE_TEST_SCENARIO";
constexpr char kRank[] = "THINWIRE_TEST_RANK";
constexpr char kSize[] = "THINWIRE_TEST_SIZE";
constexpr char kArgs[] = "THINWIRE_TEST_ARGS";
constexpr char kParent[] = "THINWIRE_TEST_PARENT";
constexpr char kSeparator = '\x1f';

std::map<std::string, Scenario>& scenarios() {
  static std::map<std::string, Scenario> table;
  return table;
}

[[noreturn]] void system_failed(const char* what, int error) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
}

struct Process {
  pid_t pid = -1;
  int pidfd = -1, output = -1;
  bool started = false, ended = false;
  Clock::time_point begin;
  RankResult result;

  void read_output() {
    char buffer[1 << 16];
    for (;;) {
      const auto n = ::read(output, buffer, sizeof buffer);
      if (n > 0)
        result.output.append(buffer, static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR)
        return;
    }
  }
  void reap() {
    int status = 0;
    rusage usage{};
    if (::wait4(pid, &status, 0, &usage) != pid) system_failed("wait4", errno);
    ended = true;
    result.wall_s = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    result.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    read_output();
    ::close(pidfd);
    ::close(output);
    pidfd = output = -1;
  }
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& more) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!more.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : more) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

RegisterScenario::RegisterScenario(const std::string& name, Scenario run) {
  if (!scenarios().try_emplace(name, std::move(run)).second)
    throw std::logic_error("scenario '" + name + "' is registered twice");
}

struct RankProcesses::State {
  std::string scenario;
  ProcessOptions options;
  std::vector<Process> processes;

  /// Reads what there is and reaps who has ended, waiting until something happens or `deadline`.
  void pump(Clock::time_point deadline) {
    std::vector<pollfd> polls;
    std::vector<Process*> owners;
    for (auto& process : processes)
      if (process.started && !process.ended) {
        polls.push_back({process.output, POLLIN, 0});
        polls.push_back({process.pidfd, POLLIN, 0});
        owners.push_back(&process);
      }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (::poll(polls.data(), polls.size(), static_cast<int>(std::max<long>(left, 0))) < 0) return;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      if (polls[2 * i].revents != 0) owners[i]->read_output();
      if (polls[2 * i + 1].revents != 0) owners[i]->reap();
    }
  }
};

RankProcesses::RankProcesses(int n, const std::string& scenario, ProcessOptions options)
    : state_(std::make_unique<State>()) {
  if (!scenarios().contains(scenario))
    throw std::logic_error("no scenario '" + scenario + "' is registered");
  state_->scenario = scenario;
  state_->options = std::move(options);
  state_->processes.resize(n);
  for (Rank r = 0; r < n && state_->options.start; ++r) start(r);
}

RankProcesses::~RankProcesses() {
  for (auto& process : state_->processes)
    if (process.started && !process.ended) ::kill(process.pid, SIGKILL);
  for (auto& process : state_->processes)
    if (process.started && !process.ended) process.reap();
}

void RankProcesses::start(Rank rank) {
  auto& process = state_->processes.at(rank);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) system_failed("pipe2", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  auto more = state_->options.environment;
  more[kScenario] = state_->scenario;
  more[kRank] = std::to_string(rank);
  more[kSize] = std::to_string(state_->processes.size());
  more[kArgs] = join(state_->options.args, std::string(1, kSeparator));
  more[kParent] = std::to_string(::getpid());
  auto environment = environment_with(more);
  std::vector<std::string> command;
  if (state_->options.prefix) command = state_->options.prefix(rank);
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) system_failed("readlink", errno);
  command.emplace_back(self);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  process.begin = Clock::now();
  const int error = ::posix_spawnp(&process.pid, command[0].c_str(), &actions, nullptr,
                                   pointers_to(command).data(), pointers_to(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) system_failed("posix_spawn", error);
  process.output = ends[0];
  process.started = true;
  process.pidfd = ::pidfd_open(process.pid, 0);
  if (process.pidfd < 0) system_failed("pidfd_open", errno);
}

pid_t RankProcesses::pid(Rank rank) const { return state_->processes.at(rank).pid; }

void RankProcesses::signal(Rank rank, int number) {
  auto& process = state_->processes.at(rank);
  if (process.started && !process.ended) ::kill(process.pid, number);
}

bool RankProcesses::wait_for(Rank rank, const std::string& words, double seconds) {
  auto& process = state_->processes.at(rank);
  const auto deadline = after(seconds);
  for (;;) {
    if (process.result.output.find(words) != std::string::npos) return true;
    if (!process.started || process.ended || Clock::now() >= deadline) return false;
    state_->pump(deadline);
  }
}

const RankResult& RankProcesses::wait(Rank rank, double seconds) {
  auto& process = state_->processes.at(rank);
  const auto deadline = after(seconds);
  while (process.started && !process.ended) {
    if (Clock::now() >= deadline) {
      ADD_FAILURE() << "rank " << rank << " has not ended after " << seconds << " s; its output:\n"
                    << process.result.output;
      ::kill(process.pid, SIGKILL);
      process.reap();
      break;
    }
    state_->pump(deadline);
  }
  return process.result;
}

std::vector<RankResult> RankProcesses::wait_all(double seconds) {
  const auto deadline = after(seconds);
  std::vector<RankResult> results;
  for (Rank r = 0; r < static_cast<Rank>(state_->processes.size()); ++r)
    results.push_back(wait(r, std::chrono::duration<double>(deadline - Clock::now()).count()));
  return results;
}

const RankResult& RankProcesses::result(Rank rank) {
  state_->pump(Clock::now());
  return state_->processes.at(rank).result;
}

std::vector<RankResult> ranks_as_processes(int n, const std::string& scenario,
                                           std::vector<std::string> args, double seconds) {
  ProcessOptions options;
  options.args = std::move(args);
  return RankProcesses(n, scenario, std::move(options)).wait_all(seconds);
}

bool run_as_rank(int& exit_code) {
  const char* name = std::getenv(kScenario);
  if (!name) return false;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A prefix such as `ip netns exec` replaces itself by us, so the parent is the test in any case.
  if (::getppid() != std::atoi(std::getenv(kParent))) ::_exit(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RankContext context{std::atoi(std::getenv(kRank)), std::atoi(std::getenv(kSize)), {}};
  if (const std::string args = std::getenv(kArgs); !args.empty())
    context.args = split(args, kSeparator);
  try {
    exit_code = scenarios().at(name)(context);
  } catch (...) {
    const auto text = text_of(std::current_exception());
    std::fprintf(stderr, "%s\n", text.c_str());
    exit_code = text.starts_with("ConfigError") ? 2 : 1;
  }
  return true;
}

}  // namespace thinwire::test
