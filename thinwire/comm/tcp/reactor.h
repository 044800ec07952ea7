// SPDX-License-Identifier: Apache-2.0
// Waits for sockets and for other threads, without an allocation: one epoll set and one eventfd.
#pragma once
#include <cstdint>
#include <span>

struct epoll_event;

namespace thinwire::tcp {

class Reactor {
 public:
  Reactor();  ///< CommError where the system gives no descriptors
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  struct Event {
    std::uint32_t key = 0;
    bool readable = false, writable = false;  ///< a broken socket is both
  };
  static constexpr std::uint32_t kWake = ~std::uint32_t{0};  ///< key of wake()

  void add(int fd, std::uint32_t key);  ///< for reading
  void want(int fd, std::uint32_t key, bool reading, bool writing);
  void remove(int fd);
  /// Ends the wait under way, or the next one. Any thread; the only function that others may call.
  void wake();
  /// Sleeps until something is ready, at most `most_ms` (-1: as long as it takes); fills `events`
  /// and says how many there are.
  std::size_t wait(std::span<Event> events, int most_ms);

 private:
  int epoll_ = -1, wake_ = -1;
};

}  // namespace thinwire::tcp
