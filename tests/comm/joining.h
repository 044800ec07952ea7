// SPDX-License-Identifier: Apache-2.0
// What tests of joining a group share: addresses of this machine and options to join there.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "thinwire/comm/membership.h"

namespace thinwire::test {

constexpr double kT = 2;  ///< T of the known failures

/// A socket of the test's own that listens on 127.0.0.1 and never answers.
struct Listener {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port = 0;
  Listener() {
    sockaddr_in end{};
    end.sin_family = AF_INET;
    end.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof end;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&end), size), 0);
    EXPECT_EQ(::listen(fd, 16), 0);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&end), &size);
    port = ntohs(end.sin_port);
  }
  ~Listener() { ::close(fd); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

inline std::string at(int port) { return "127.0.0.1:" + std::to_string(port); }
/// A port that is free a moment later.
inline int free_port() { return Listener().port; }

inline JoinOptions options_at(const std::string& address, Rank rank, int size,
                              double timeout_s = kT, const std::string& run_id = "") {
  JoinOptions options;
  options.rank = rank;
  options.size = size;
  options.address = address;
  options.timeout_s = timeout_s;
  options.run_id = run_id;
  return options;
}

}  // namespace thinwire::test
