// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/net_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <asio/ip/udp.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "thinwire/core/error.h"

namespace thinwire {

using asio::ip::tcp;

HostPort parse_host_port(std::string_view text) {
  const auto wrong = [&](const char* rule) {
    return ConfigError(fmt::format("rendezvous address: {}, got '{}'", rule, text));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    throw wrong("HOST:PORT or file:PATH is expected");
  auto host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    throw wrong("an IPv6 address stands in brackets, [::1]:4000");
  int port = 0;
  const auto digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 1 || port > 65535)
    throw wrong("the port must be in 1..65535");
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

std::vector<tcp::endpoint> resolve(asio::io_context& io, const HostPort& where) {
  asio::error_code error;
  const auto numeric = asio::ip::make_address(where.host, error);
  if (!error) return {tcp::endpoint(numeric, where.port)};
  std::vector<tcp::endpoint> ends;
  for (const auto& entry : tcp::resolver(io).resolve(where.host, std::to_string(where.port), error))
    ends.push_back(entry.endpoint());
  if (error || ends.empty())
    throw ConfigError(fmt::format("rendezvous address: host '{}' cannot be resolved: {}",
                                  where.host, error.message()));
  return ends;
}

std::string text_of_address(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

std::string text_of_endpoint(const tcp::endpoint& end) {
  const auto address = text_of_address(end.address());
  const bool brackets = address.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address, brackets ? "]" : "", end.port());
}

std::vector<NetInterface> net_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::vector<NetInterface> found;
  for (const auto* entry = list; entry; entry = entry->ifa_next) {
    if (!(entry->ifa_flags & IFF_UP)) continue;
    auto it = std::find_if(found.begin(), found.end(),
                           [&](const auto& known) { return known.name == entry->ifa_name; });
    if (it == found.end()) it = found.insert(found.end(), {entry->ifa_name, {}});
    if (!entry->ifa_addr) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      it->addresses.emplace_back(asio::ip::address_v4(ntohl(in->sin_addr.s_addr)));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      asio::ip::address_v6::bytes_type bytes;
      std::copy_n(in->sin6_addr.s6_addr, bytes.size(), bytes.begin());
      it->addresses.emplace_back(asio::ip::address_v6(bytes, in->sin6_scope_id));
    }
  }
  ::freeifaddrs(list);
  return found;
}

asio::ip::address address_of_interface(const std::string& name, const asio::ip::address& like) {
  std::vector<std::string> present;
  for (const auto& known : net_interfaces()) {
    if (known.name == name && !known.addresses.empty()) {
      for (const auto& address : known.addresses)
        if (address.is_v4() == like.is_v4()) return address;
      return known.addresses.front();
    }
    std::vector<std::string> addresses;
    for (const auto& address : known.addresses) addresses.push_back(text_of_address(address));
    present.push_back(fmt::format("{} ({})", known.name, fmt::join(addresses, " ")));
  }
  throw ConfigError(fmt::format("interface '{}' is not there or has no address; present: {}", name,
                                fmt::join(present, ", ")));
}

std::string interface_of(const std::string& address) {
  for (const auto& known : net_interfaces())
    for (const auto& own : known.addresses)
      if (text_of_address(own) == address) return known.name;
  return "";
}

asio::ip::address default_address() {
  // Connecting a datagram socket sends nothing; the kernel only chooses the route. The addresses
  // are those reserved for documentation.
  asio::io_context io;
  for (const char* far : {"192.0.2.1", "2001:db8::1"}) {
    asio::error_code error;
    asio::ip::udp::socket socket(io);
    socket.connect({asio::ip::make_address(far), 9}, error);
    if (error) continue;
    const auto end = socket.local_endpoint(error);
    if (!error && !end.address().is_unspecified()) return end.address();
  }
  for (const auto& known : net_interfaces())
    for (const auto& address : known.addresses)
      if (!address.is_loopback() && address.is_v4()) return address;
  return asio::ip::address_v4::loopback();
}

namespace {

/// Inodes of the sockets that listen on `port`.
std::set<std::string> listening_inodes(std::uint16_t port) {
  std::set<std::string> inodes;
  const auto ending = fmt::format(":{:04X}", port);
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> field;
      for (std::string word; words >> word;) field.push_back(word);
      if (field.size() > 9 && field[1].ends_with(ending) && field[3] == "0A")
        inodes.insert("socket:[" + field[9] + "]");
    }
  }
  return inodes;
}

}  // namespace

std::string port_holder(std::uint16_t port) {
  namespace fs = std::filesystem;
  const auto inodes = listening_inodes(port);
  if (inodes.empty()) return "";
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const auto pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code denied;
    for (auto fd = fs::directory_iterator(process.path() / "fd", denied);
         !denied && fd != fs::directory_iterator(); fd.increment(denied)) {
      std::error_code gone;
      if (!inodes.contains(fs::read_symlink(fd->path(), gone).string())) continue;
      std::ifstream file(process.path() / "comm");
      std::string name;
      std::getline(file, name);
      return fmt::format("process {} ({})", pid, name);
    }
  }
  return "";
}

}  // namespace thinwire
