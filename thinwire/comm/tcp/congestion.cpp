// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/congestion.h"

#include <fmt/format.h>
#include <linux/tcp.h>  // netinet/tcp.h lacks the shortest round trip, and cannot stand beside it
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "thinwire/core/error.h"

namespace thinwire::tcp {
namespace {

bool take(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string allowed() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  std::string line;
  std::getline(file, line);
  return line.empty() ? "those of the system" : line;
}

}  // namespace

void check_congestion(const std::string& name) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;  // then the connections will say what is wrong
  const bool taken = take(fd, name);
  ::close(fd);
  if (!taken)
    throw ConfigError(fmt::format(
        "tcp: congestion must be one that this kernel allows ({}), got {}", allowed(), name));
}

void set_congestion(int fd, const std::string& name) {
  if (take(fd, name)) return;
  throw CommError(
      fmt::format("tcp: congestion control {} cannot be set: {}", name, std::strerror(errno)));
}

std::string congestion_of(int fd) {
  std::array<char, 17> name{};  // the kernel's names have 15 characters at most
  socklen_t size = name.size() - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "";
  return name.data();
}

std::string congestion_for(const std::string& systems, Seconds round_trip_s) {
  constexpr Seconds kShort = 2e-3;
  return systems == "bbr" && round_trip_s < kShort ? "cubic" : "";
}

void choose_congestion(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt)
    return;  // an old kernel
  const std::string name = congestion_for(congestion_of(fd), 1e-6 * info.tcpi_min_rtt);
  if (!name.empty()) take(fd, name);
}

}  // namespace thinwire::tcp
