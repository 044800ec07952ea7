// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/reactor.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "thinwire/core/error.h"

namespace thinwire::tcp {

Reactor::Reactor()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const int error = errno;
  if (epoll_ >= 0 && wake_ >= 0) {
    add(wake_, kWake);
    return;
  }
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
  throw CommError(fmt::format("tcp: no event descriptors: {}", std::strerror(error)));
}

Reactor::~Reactor() {
  ::close(wake_);
  ::close(epoll_);
}

void Reactor::add(int fd, std::uint32_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = key;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
    throw CommError(fmt::format("tcp: cannot watch a socket: {}", std::strerror(errno)));
}

void Reactor::want(int fd, std::uint32_t key, bool reading, bool writing) {
  epoll_event event{};
  event.events = (reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u);
  event.data.u32 = key;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Reactor::remove(int fd) { ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

void Reactor::wake() {
  const std::uint64_t one = 1;
  // Can only fail when the counter is full, and then the other side is awake anyway.
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

std::size_t Reactor::wait(std::span<Event> events, int most_ms) {
  std::array<epoll_event, 64> ready;
  const int n = ::epoll_wait(epoll_, ready.data(),
                             static_cast<int>(std::min(events.size(), ready.size())), most_ms);
  for (int i = 0; i < n; ++i) {
    const auto bits = ready[static_cast<std::size_t>(i)].events;
    const bool broken = (bits & (EPOLLERR | EPOLLHUP)) != 0;
    events[static_cast<std::size_t>(i)] = {ready[static_cast<std::size_t>(i)].data.u32,
                                           (bits & EPOLLIN) != 0 || broken,
                                           (bits & EPOLLOUT) != 0 || broken};
    if (ready[static_cast<std::size_t>(i)].data.u32 != kWake) continue;
    std::uint64_t count;
    [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
  }
  return n > 0 ? static_cast<std::size_t>(n) : 0;  // a signal is no event
}

}  // namespace thinwire::tcp
