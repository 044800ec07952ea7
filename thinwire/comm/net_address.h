// SPDX-License-Identifier: Apache-2.0
// Internal to comm: addresses, network interfaces, and who holds a port.
#pragma once
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
/// "10.0.0.1:4000", "[fe80::1]:4000", "node7:4000"; anything else is a ConfigError.
HostPort parse_host_port(std::string_view text);
/// All addresses of a host, in the resolver's order. ConfigError if it has none.
std::vector<asio::ip::tcp::endpoint> resolve(asio::io_context& io, const HostPort& where);

std::string text_of_address(const asio::ip::address& address);  ///< IPv4 in IPv6 is shown as IPv4
std::string text_of_endpoint(const asio::ip::tcp::endpoint& end);

struct NetInterface {
  std::string name;
  std::vector<asio::ip::address> addresses;
};
/// Those that are up, in the system's order.
std::vector<NetInterface> net_interfaces();
/// The address of interface `name`, of the family of `like` where it has one. Unknown, or without
/// an address: ConfigError that lists those present.
asio::ip::address address_of_interface(const std::string& name, const asio::ip::address& like);
/// The name of the interface with this address; empty if there is none.
std::string interface_of(const std::string& address);
/// The address that this host uses towards the rest of the world; loopback if there is none.
asio::ip::address default_address();

/// "process 1234 (python3)" for the process that listens on a local port; empty if unknown.
std::string port_holder(std::uint16_t port);

}  // namespace thinwire
