// SPDX-License-Identifier: Apache-2.0
// The data connections: each rank listens, tells the others where over the control connections,
// connects to the lower ranks and is connected to by the higher ones. Both sides say who they are
// before use.
#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <charconv>
#include <cstring>
#include <fstream>

#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"

namespace thinwire::tcp {
namespace {

using Socket = asio::ip::tcp::socket;
constexpr std::uint32_t kHello = 0x48575754;  // "TWWH"

struct Hello {
  std::uint32_t magic = kHello;
  std::int32_t rank = 0;
  std::uint64_t run = 0;
};
using HelloBytes = std::array<std::byte, sizeof(Hello)>;

/// First and last number in a file of /proc/sys; 0 where there is none.
std::pair<std::int64_t, std::int64_t> kernel_limits(const char* path) {
  std::ifstream file(path);
  std::int64_t first = 0, last = 0;
  if (file >> first) last = first;
  for (std::int64_t next = 0; file >> next;) last = next;
  return {first, last};
}

/// What a send buffer may hold at most. The kernel sizes it by the time of a round trip, which
/// between neighbours is so short that a few milliseconds without the processor (a layer's backward
/// runs on it) empty the buffer and the link stands idle. Asked for at once where the kernel grants
/// all that its own sizing could reach, and left to that elsewhere. 0: left alone.
int send_buffer_bytes() {
  static const int bytes = [] {
    const std::int64_t wanted = kernel_limits("/proc/sys/net/ipv4/tcp_wmem").second / 2;
    const std::int64_t granted = kernel_limits("/proc/sys/net/core/wmem_max").first;
    return wanted > 0 && wanted <= granted
               ? static_cast<int>(std::min<std::int64_t>(wanted, 1 << 24))
               : 0;
  }();
  return bytes;
}

void set_up(Socket& socket) {
  asio::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  // The kernel counts twice what is asked for.
  if (const int bytes = send_buffer_bytes(); bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(bytes), ignored);
  socket.native_non_blocking(true, ignored);
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

asio::ip::tcp::acceptor listen(asio::io_context& io, const std::string& address,
                               std::pair<int, int> ports) {
  const auto ip = asio::ip::make_address(address.empty() ? "127.0.0.1" : address);
  for (int port = ports.first; port <= ports.second; ++port) {
    asio::ip::tcp::acceptor acceptor(io);
    asio::error_code error;
    const asio::ip::tcp::endpoint endpoint(ip, static_cast<unsigned short>(port));
    acceptor.open(endpoint.protocol());
    ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (port != 0) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    // The accepted inherit it, so that what waits of them after the run keeps no server off a port
    // that the kernel chose; set before, it would let the kernel choose one that is in use.
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) return acceptor;
  }
  throw CommError(fmt::format("tcp: no port of {}-{} is free on {} (listen for data connections)",
                              ports.first, ports.second, ip.to_string()));
}

/// One run of connecting; lives on the stack of connect_all, which runs the event loop to the end.
struct Connecting {
  asio::io_context& io;
  Membership& membership;
  asio::ip::tcp::acceptor acceptor;
  std::uint64_t run;
  std::vector<std::optional<Socket>> made;
  int left;

  struct Greeting {
    explicit Greeting(asio::io_context& io) : socket(io), timer(io) {}
    Socket socket;
    asio::steady_timer timer;
    HelloBytes in{}, out{};
  };

  HelloBytes hello() const {
    const Hello value{kHello, membership.rank(), run};
    HelloBytes bytes;
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }

  /// Rank of a proper greeting from a rank in [least, size); -1 for a stranger's.
  Rank rank_of(const HelloBytes& bytes, Rank least) const {
    Hello value;
    std::memcpy(&value, bytes.data(), sizeof value);
    const bool proper = value.magic == kHello && value.run == run && value.rank >= least &&
                        value.rank < membership.size() &&
                        !made[static_cast<std::size_t>(value.rank)];
    return proper ? value.rank : -1;
  }

  void keep(Rank rank, Socket socket) {
    set_up(socket);
    made[static_cast<std::size_t>(rank)] = std::move(socket);
    if (--left == 0) io.stop();
  }

  /// The sockets, out of the hands of asio.
  std::vector<int> take() {
    std::vector<int> out;
    for (auto& socket : made) out.push_back(socket ? socket->release() : -1);
    return out;
  }

  void accept_next() {
    acceptor.async_accept([this](const asio::error_code& error, Socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return accept_next();
      auto greeting = std::make_shared<Greeting>(io);
      greeting->socket = std::move(socket);
      asio::async_read(greeting->socket, asio::buffer(greeting->in),
                       [this, greeting](const auto& failed, std::size_t) {
                         const Rank rank =
                             failed ? -1 : rank_of(greeting->in, membership.rank() + 1);
                         if (rank < 0) return;  // a stranger: its connection is dropped
                         greeting->out = hello();
                         asio::async_write(greeting->socket, asio::buffer(greeting->out),
                                           [this, greeting, rank](const auto& broken, std::size_t) {
                                             if (!broken) keep(rank, std::move(greeting->socket));
                                           });
                       });
      accept_next();
    });
  }

  void connect_to(Rank rank, const asio::ip::tcp::endpoint& endpoint) {
    auto greeting = std::make_shared<Greeting>(io);
    const auto again = [this, rank, endpoint, greeting] {
      greeting->timer.expires_after(std::chrono::milliseconds(50));
      greeting->timer.async_wait(
          [this, rank, endpoint, greeting](const auto&) { connect_to(rank, endpoint); });
    };
    greeting->socket.async_connect(
        endpoint, [this, rank, greeting, again](const asio::error_code& error) {
          if (error) return again();
          greeting->out = hello();
          asio::async_write(greeting->socket, asio::buffer(greeting->out),
                            [](const auto&, std::size_t) {});
          asio::async_read(greeting->socket, asio::buffer(greeting->in),
                           [this, rank, greeting, again](const auto& failed, std::size_t) {
                             if (failed) return again();
                             if (rank_of(greeting->in, rank) == rank)
                               keep(rank, std::move(greeting->socket));
                           });
        });
  }
};

std::string missing(const Connecting& connecting) {
  std::vector<std::string> names;
  for (std::size_t r = 0; r < connecting.made.size(); ++r)
    if (!connecting.made[r] && static_cast<Rank>(r) != connecting.membership.rank())
      names.push_back(fmt::format("rank {}", r));
  return join(names, ", ");
}

}  // namespace

std::vector<int> connect_all(Membership& membership, const std::string& agreed,
                             std::pair<int, int> ports) {
  // Handlers still under way at the end are dropped with the context, and never run.
  asio::io_context io{1};
  const Rank own = membership.rank();
  Connecting connecting{
      io,
      membership,
      listen(io, membership.address_of(own), ports),
      hash_bytes(membership.run_id().data(), static_cast<std::int64_t>(membership.run_id().size())),
      std::vector<std::optional<Socket>>(static_cast<std::size_t>(membership.size())),
      membership.size() - 1};
  const auto endpoint = connecting.acceptor.local_endpoint();
  const auto blobs = membership.all_gather(
      "tcp data addresses",
      fmt::format("{} {} {}", endpoint.address().to_string(), endpoint.port(), agreed));
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    const auto fields = split(blobs[r], ' ');
    if (fields.size() < 3) throw DataError(fmt::format("tcp: rank {} sent no address", r));
    const std::string theirs = blobs[r].substr(fields[0].size() + fields[1].size() + 2);
    if (theirs != agreed)
      throw ConfigError(
          fmt::format("tcp: options differ between ranks: rank {} has {}, rank {} has {}", own,
                      agreed, r, theirs));
    asio::error_code error;
    const auto address = asio::ip::make_address(fields[0], error);
    unsigned short port = 0;
    std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), port);
    if (error || port == 0)
      throw DataError(fmt::format("tcp: rank {} sent the address {}:{}", r, fields[0], fields[1]));
    endpoints.emplace_back(address, port);
  }
  if (connecting.left == 0) return connecting.take();
  connecting.accept_next();
  for (Rank r = 0; r < own; ++r) connecting.connect_to(r, endpoints[static_cast<std::size_t>(r)]);
  const Deadline deadline = after(membership.timeout_s());
  while (connecting.left > 0 && Clock::now() < deadline && !membership.fault()) {
    io.restart();
    io.run_for(std::chrono::milliseconds(100));
  }
  asio::error_code ignored;
  connecting.acceptor.close(ignored);
  if (const auto fault = membership.fault())
    std::rethrow_exception(error_of(*fault, "tcp: connect data connections"));
  if (connecting.left > 0) {
    const Fault fault = membership.fail(
        {-1, fmt::format("no data connection to {} within {:.1f} s (connect, hand-shake)",
                         missing(connecting), membership.timeout_s())});
    std::rethrow_exception(error_of(fault, "tcp"));
  }
  return connecting.take();
}

}  // namespace thinwire::tcp
