// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "thinwire/core/error.h"
#include "thinwire/core/types.h"

extern char** environ;

namespace thinwire {
namespace {

constexpr Seconds kGrace_s = 2;  // for the others after a rank has failed
constexpr const char* kRank = "THINWIRE_RANK";
constexpr const char* kSize = "THINWIRE_SIZE";
constexpr const char* kLocalRank = "THINWIRE_LOCAL_RANK";
constexpr const char* kLocalSize = "THINWIRE_LOCAL_SIZE";
constexpr const char* kAddress = "THINWIRE_ADDRESS";
constexpr const char* kReportVariable = "THINWIRE_REPORT_FD";

/// A descriptor that is read in lines.
struct Stream {
  int fd = -1;
  std::string rest;
  std::FILE* out = nullptr;  ///< where labelled lines go; nullptr: they are a report
};

struct Child {
  pid_t pid = -1;
  Stream output, errors, report;
  std::optional<int> status;  ///< as from waitpid
  std::string last_line;      ///< of its errors
  std::string reason;         ///< as it reported itself
  bool consequence = false;   ///< it failed because another rank did
};

void set_variable(std::vector<std::string>& all, const std::string& name,
                  const std::string& value) {
  std::erase_if(all, [&](const auto& one) { return one.starts_with(name + "="); });
  all.push_back(name + "=" + value);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (auto& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() {
    kill_all(SIGKILL);
    // What ranks have started themselves, loaders of data for example, has no launcher.
    if (group_ > 0 && (asked_ || !failures_.empty())) ::kill(-group_, SIGKILL);
    for (auto& child : children_) {
      if (!child.status && child.pid > 0) waitpid(child.pid, nullptr, 0);
      for (auto* stream : {&child.output, &child.errors, &child.report})
        if (stream->fd >= 0) ::close(stream->fd);
    }
    if (signals_ >= 0) ::close(signals_);
    if (masked_) sigprocmask(SIG_SETMASK, &before_, nullptr);
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }
  int run();

 private:
  void start(int rank);
  [[noreturn]] void become(int rank, const int (&write_ends)[3], std::vector<char*>& argv,
                           std::vector<char*>& envp);
  void wait_once();
  void take_signals();
  void collect();
  void read_from(Stream& stream, int rank);
  void line_from(Stream& stream, int rank, const std::string& line);
  void failed(int rank);
  int verdict();
  void kill_all(int signal) {
    for (const auto& child : children_)
      if (child.pid > 0 && !child.status) ::kill(child.pid, signal);
  }
  bool running() const {
    return std::any_of(children_.begin(), children_.end(), [](const auto& c) { return !c.status; });
  }

  LaunchOptions options_;
  std::vector<Child> children_;
  std::string folder_;
  sigset_t before_{};
  bool masked_ = false;
  int signals_ = -1, asked_ = 0;
  pid_t group_ = 0;
  std::vector<int> failures_;  // ranks, in the order in which they failed
  std::optional<Deadline> patience_;
};

void Launcher::become(int rank, const int (&write_ends)[3], std::vector<char*>& argv,
                      std::vector<char*>& envp) {
  // Own process group: a terminal's Ctrl-C reaches the ranks once, through the launcher.
  setpgid(0, group_);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank > 0) dup2(write_ends[0], STDOUT_FILENO);
  dup2(write_ends[1], STDERR_FILENO);
  fcntl(write_ends[2], F_SETFD, 0);  // the report's end survives exec
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  execve(options_.file.empty() ? argv[0] : options_.file.c_str(), argv.data(), envp.data());
  const char* why = std::strerror(errno);
  for (const char* text : {"cannot start ", static_cast<const char*>(argv[0]), ": ", why, "\n"})
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  _exit(127);
}

void Launcher::start(int rank) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  int pipes[3][2];
  for (auto& ends : pipes)
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  std::vector<std::string> variables;
  for (char** at = environ; *at; ++at) variables.emplace_back(*at);
  set_variable(variables, kRank, fmt::format("{}", rank));
  set_variable(variables, kSize, fmt::format("{}", options_.ranks));
  set_variable(variables, kLocalRank, fmt::format("{}", rank));
  set_variable(variables, kLocalSize, fmt::format("{}", options_.ranks));
  set_variable(variables, kAddress, "file:" + folder_ + "/address");
  set_variable(variables, kReportVariable, fmt::format("{}", pipes[2][1]));
  auto words = options_.command;
  auto argv = pointers(words), envp = pointers(variables);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
  if (pid == 0) {
    if (getppid() != parent) _exit(127);  // the parent died before the death signal was set
    const int write_ends[3] = {pipes[0][1], pipes[1][1], pipes[2][1]};
    become(rank, write_ends, argv, envp);
  }
  child.pid = pid;
  if (group_ == 0) group_ = pid;
  setpgid(pid, group_);
  for (auto& ends : pipes) ::close(ends[1]);
  child.output = {pipes[0][0], {}, options_.errors};
  child.errors = {pipes[1][0], {}, options_.errors};
  child.report = {pipes[2][0], {}, nullptr};
  for (auto* stream : {&child.output, &child.errors, &child.report})
    fcntl(stream->fd, F_SETFL, O_NONBLOCK);
}

void Launcher::line_from(Stream& stream, int rank, const std::string& line) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  if (&stream == &child.report) {
    child.consequence = line.starts_with("consequence ");
    child.reason = line.substr(line.find(' ') + 1);
    failures_.push_back(rank);
    return;
  }
  if (&stream == &child.errors && !line.empty()) child.last_line = line;
  // The verdict says it, for all ranks together.
  if (&stream == &child.errors && !child.consequence && !child.reason.empty() &&
      line == "thinwire: " + child.reason)
    return;
  std::fprintf(stream.out, "[rank %d] %s\n", rank, line.c_str());
  std::fflush(stream.out);
}

void Launcher::read_from(Stream& stream, int rank) {
  char block[4096];
  for (;;) {
    const ssize_t got = ::read(stream.fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) {
      stream.rest.append(block, static_cast<std::size_t>(got));
      for (std::size_t end; (end = stream.rest.find('\n')) != std::string::npos;) {
        line_from(stream, rank, stream.rest.substr(0, end));
        stream.rest.erase(0, end + 1);
      }
      continue;
    }
    if (!stream.rest.empty()) line_from(stream, rank, stream.rest);
    stream.rest.clear();
    ::close(stream.fd);
    stream.fd = -1;
    return;
  }
}

void Launcher::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    // The first is a wish, the second an order.
    kill_all(asked_ ? SIGKILL : signal);
    asked_ = asked_ ? asked_ : signal;
  }
}

void Launcher::failed(int rank) {
  if (std::find(failures_.begin(), failures_.end(), rank) == failures_.end())
    failures_.push_back(rank);
  if (!patience_) patience_ = after(kGrace_s);
}

void Launcher::collect() {
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    int status = 0;
    if (child.status || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.status = status;
    for (auto* stream : {&child.report, &child.errors, &child.output})
      if (stream->fd >= 0) read_from(*stream, static_cast<int>(rank));
    const bool stopped = WIFEXITED(status) && WEXITSTATUS(status) > 128;
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !stopped)
      failed(static_cast<int>(rank));
  }
  if (patience_ && Clock::now() >= *patience_) kill_all(SIGKILL);
}

void Launcher::wait_once() {
  std::vector<pollfd> polled{{signals_, POLLIN, 0}};
  std::vector<std::pair<Stream*, int>> streams;
  for (std::size_t rank = 0; rank < children_.size(); ++rank)
    for (auto* stream : {&children_[rank].report, &children_[rank].errors, &children_[rank].output})
      if (stream->fd >= 0) {
        polled.push_back({stream->fd, POLLIN, 0});
        streams.emplace_back(stream, static_cast<int>(rank));
      }
  ::poll(polled.data(), polled.size(), patience_ ? 100 : 1000);
  if (polled[0].revents) take_signals();
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (polled[i + 1].revents) read_from(*streams[i].first, streams[i].second);
  collect();
}

int Launcher::verdict() {
  if (failures_.empty() || asked_) {
    for (const auto& child : children_)
      if (WIFEXITED(*child.status) && WEXITSTATUS(*child.status) > 128)
        return WEXITSTATUS(*child.status);
    if (asked_) return 128 + asked_;
    return 0;
  }
  const auto cause = std::find_if(failures_.begin(), failures_.end(), [&](int rank) {
    return !children_[static_cast<std::size_t>(rank)].consequence;
  });
  const int rank = cause == failures_.end() ? failures_.front() : *cause;
  const Child& child = children_[static_cast<std::size_t>(rank)];
  const std::string& words = child.reason.empty() ? child.last_line : child.reason;
  std::string how;
  int code = 1;
  if (WIFSIGNALED(*child.status)) {
    how = fmt::format("was ended by signal {} ({})", WTERMSIG(*child.status),
                      strsignal(WTERMSIG(*child.status)));
  } else {
    code = WEXITSTATUS(*child.status) ? WEXITSTATUS(*child.status) : 1;
    how = fmt::format("failed (exit code {})", code);
  }
  std::fprintf(options_.errors, "thinwire: rank %d %s%s%s\n", rank, how.c_str(),
               words.empty() ? "" : ": ", words.c_str());
  for (std::size_t other = 0; other < children_.size(); ++other)
    if (const Child& one = children_[other];
        !one.consequence && !one.reason.empty() && one.reason != words)
      std::fprintf(options_.errors, "thinwire: rank %zu failed too: %s\n", other,
                   one.reason.c_str());
  return code;
}

int Launcher::run() {
  char folder[] = "/tmp/thinwire-XXXXXX";
  if (!mkdtemp(folder))
    throw Error(fmt::format("cannot make a folder in /tmp: {}", std::strerror(errno)));
  folder_ = folder;
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &before_);
  masked_ = true;
  signals_ = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0) throw Error(fmt::format("cannot watch signals: {}", std::strerror(errno)));
  children_.resize(static_cast<std::size_t>(options_.ranks));
  for (int rank = 0; rank < options_.ranks; ++rank) start(rank);
  while (running()) wait_once();
  return verdict();
}

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.ranks < 1)
    throw ConfigError(fmt::format("ranks: must be at least 1, got {}", options.ranks));
  std::fflush(nullptr);
  Launcher launcher(options);
  return launcher.run();
}

void report_failure(const std::exception& error) {
  const char* text = std::getenv(kReportVariable);
  if (!text) return;
  const bool consequence = dynamic_cast<const CommError*>(&error) != nullptr;
  std::string line = fmt::format("{} {}", consequence ? "consequence" : "cause", error.what());
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (::write(std::atoi(text), line.data(), line.size()) < 0) return;  // the launcher is gone
}

int available_cores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

bool pin_to_cores(int local_rank, int local_size) {
  cpu_set_t allowed, mine;
  if (local_size < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  const int each = CPU_COUNT(&allowed) / local_size;
  if (each < 1) return false;
  CPU_ZERO(&mine);
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (seen / each == local_rank) CPU_SET(cpu, &mine);
    ++seen;
  }
  return sched_setaffinity(0, sizeof mine, &mine) == 0;
}

}  // namespace thinwire
