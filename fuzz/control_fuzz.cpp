// SPDX-License-Identifier: Apache-2.0
// Hostile messages at the rendezvous and on the control connections. The first byte of an input
// chooses who is real: rank 0 while ranks join (the other side is a guest), rank 1 while it joins
// (the other side is rank 0), or rank 0 after a proper hand-shake (the other side is a rank of the
// group that has gone mad). Nothing but an error in words may come of it.
//
// The rest is a row of messages: type, length of the head in two bytes, length of the raw bytes in
// two, and both. Type 255 stands for bytes that are sent as they are.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <asio/io_context.hpp>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "thinwire/comm/handle.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/rendezvous.h"
#include "thinwire/core/error.h"

namespace {

using namespace thinwire;

constexpr Seconds kT = 5;
std::atomic<bool> enough{false};  // the other side has nothing more to say

struct Enough : std::runtime_error {
  Enough() : std::runtime_error("enough") {}
};

void append_message(std::string& out, std::uint32_t type, std::string_view head,
                    std::string_view blob = {}) {
  const std::array<std::uint32_t, 4> sizes{0x01435754, type,
                                           static_cast<std::uint32_t>(head.size()),
                                           static_cast<std::uint32_t>(blob.size())};
  out.append(reinterpret_cast<const char*>(sizes.data()), sizeof sizes);
  out.append(head).append(blob);
}

std::string messages(std::string_view input) {
  std::string out;
  while (input.size() >= 5) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(input[at]); };
    const std::uint32_t type = byte(0);
    const std::size_t head = byte(1) | byte(2) << 8, blob = byte(3) | byte(4) << 8;
    input.remove_prefix(5);
    const std::string_view head_bytes = input.substr(0, head);
    input.remove_prefix(head_bytes.size());
    const std::string_view blob_bytes = input.substr(0, blob);
    input.remove_prefix(blob_bytes.size());
    if (type == 255)
      out.append(head_bytes);
    else
      append_message(out, type, head_bytes, blob_bytes);
  }
  return out;
}

struct Socket {
  explicit Socket(int opened) : fd(opened) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    // No waiting state in the kernel: there would soon be no port left.
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(fd);
  }
  void send(const std::string& bytes) const {
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Until the other side closes, or for half a second.
  void drain() const {
    std::array<char, 4096> ignored;
    pollfd poll_fd{fd, POLLIN, 0};
    while (::poll(&poll_fd, 1, 500) > 0 && ::recv(fd, ignored.data(), ignored.size(), 0) > 0) {
    }
  }
  /// The whole next message; its type, 0 at the end.
  std::uint32_t next() const {
    std::array<std::uint32_t, 4> sizes;
    if (::recv(fd, sizes.data(), sizeof sizes, MSG_WAITALL) != sizeof sizes) return 0;
    std::string body(sizes[2] + std::size_t{sizes[3]}, '\0');
    if (!body.empty() &&
        ::recv(fd, body.data(), body.size(), MSG_WAITALL) != static_cast<ssize_t>(body.size()))
      return 0;
    return sizes[1];
  }
  const int fd;
};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int connected(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  return fd;
}

/// Sends all, says that it is done, and waits until the real side has read it.
void talk(const Socket& socket, const std::string& bytes) {
  socket.send(bytes);
  ::shutdown(socket.fd, SHUT_WR);
  socket.drain();
  enough = true;
}

JoinOptions options(Rank rank, int size) {
  JoinOptions join;
  join.rank = rank;
  join.size = size;
  join.run_id = "fuzz";
  join.version = "1";
  join.interface = "lo";
  join.timeout_s = kT;
  return join;
}

/// Joins, or is told that it is enough.
void join(std::unique_ptr<Joining> joining) {
  try {
    joining->run();
  } catch (const Enough&) {
  } catch (const CommError&) {
  } catch (const ConfigError&) {
  }
}

int port_of(const std::string& where) { return std::atoi(where.c_str() + where.rfind(':') + 1); }

void real_host(const std::string& bytes) {
  asio::io_context io;
  std::thread guest;
  auto how = options(0, 3);
  how.publish = [&](const std::string& where) {
    guest = std::thread([&bytes, where] { talk(Socket(connected(port_of(where))), bytes); });
    return where;
  };
  join(join_as_host(io, how));
  guest.join();
}

void real_guest(const std::string& bytes) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto address = loopback(0);
  socklen_t length = sizeof address;
  if (::bind(listener.fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.fd, 4) != 0 ||
      ::getsockname(listener.fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    std::abort();
  asio::io_context io;
  std::thread host([&] { talk(Socket(::accept(listener.fd, nullptr, nullptr)), bytes); });
  auto how = options(1, 3);
  how.address = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  join(join_as_guest(io, how));
  host.join();
}

void real_member(const std::string& bytes) {
  std::promise<void> joined;
  std::thread other;
  auto how = options(0, 2);
  how.publish = [&](const std::string& where) {
    other = std::thread([&, port = port_of(where)] {
      const Socket socket(connected(port));
      std::string hello, ready;
      append_message(hello, 1,
                     R"({"purpose":"join","protocol":1,"run_id":"fuzz","version":"1",)"
                     R"("size":2,"rank":1,"port":1})");
      append_message(ready, 5, "{}");
      socket.send(hello);
      while (const auto type = socket.next()) {
        if (type == 4) socket.send(ready);
        if (type == 6) break;
      }
      joined.get_future().wait();
      talk(socket, bytes);
    });
    return where;
  };
  {
    const auto member = join_group(how);
    const auto token = member->on_fault([](const Fault&) {});
    joined.set_value();
    try {
      member->all_gather("fuzz", "");
      member->all_gather("fuzz", "again");
    } catch (const Enough&) {
    } catch (const CommError&) {
    } catch (const ConfigError&) {
    }
    member->last_started(1);
  }
  other.join();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  on_interrupt_check([] {
    if (enough) throw Enough();
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string bytes = messages({reinterpret_cast<const char*>(data) + 1, size - 1});
  enough = false;
  switch (data[0] % 3) {
    case 0:
      real_host(bytes);
      break;
    case 1:
      real_guest(bytes);
      break;
    default:
      real_member(bytes);
  }
  return 0;
}
