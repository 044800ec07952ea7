// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/linger.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "thinwire/core/types.h"

namespace thinwire::tcp {
namespace {

constexpr Seconds kMostSeconds = 10, kMostSecondsAtExit = 2;

bool acknowledged(int fd) {
  int unsent = 0;
  return ::ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

/// True once the peer has everything, or the connection is no more.
bool settled(int fd) {
  std::array<char, 16384> ignored;
  ssize_t got;
  do got = ::recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT);
  while (got > 0);
  return acknowledged(fd);
}

/// Counts the sockets that still linger, so that the end of the program can wait a moment for them.
class Lingering {
 public:
  ~Lingering() {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, std::chrono::duration<double>(kMostSecondsAtExit),
                   [&] { return count_ == 0; });
  }
  void add() {
    std::lock_guard lock(mutex_);
    ++count_;
  }
  void done() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

Lingering& lingering() {
  static Lingering all;
  return all;
}

void linger(int fd) {
  const Deadline deadline = after(kMostSeconds);
  while (!settled(fd) && Clock::now() < deadline) {
    pollfd poll_fd{fd, 0, 0};  // nothing tells that bytes are acknowledged
    ::poll(&poll_fd, 1, 5);
    if ((poll_fd.revents & POLLERR) != 0) break;
  }
  ::close(fd);
}

}  // namespace

void close_gently(int fd) {
  if (acknowledged(fd)) {
    ::close(fd);
    return;
  }
  ::shutdown(fd, SHUT_WR);
  lingering().add();
  try {
    std::thread([fd] {
      linger(fd);
      lingering().done();
    }).detach();
  } catch (...) {  // no thread: as good as it gets
    ::close(fd);
    lingering().done();
  }
}

}  // namespace thinwire::tcp
