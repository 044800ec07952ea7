// SPDX-License-Identifier: Apache-2.0
// The TCP ports of this process.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

namespace thinwire::test {

/// Local ports of all IPv4 sockets that this process has open, listening or connected.
inline std::set<int> own_ports() {
  std::set<int> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    const int fd = std::stoi(entry.path().filename());
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0 &&
        at.sin_family == AF_INET && at.sin_port)
      ports.insert(ntohs(at.sin_port));
  }
  return ports;
}

/// Whether a port of all addresses can be bound as a server binds it that starts again.
inline bool can_bind(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_ANY);
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound =
      ::bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 && ::listen(fd, 1) == 0;
  ::close(fd);
  return bound;
}

}  // namespace thinwire::test
