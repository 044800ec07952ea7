// SPDX-License-Identifier: Apache-2.0
// The ranks other than 0 of the rendezvous.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "thinwire/comm/net_address.h"
#include "thinwire/comm/rendezvous.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using asio::ip::tcp;
using Socket = std::shared_ptr<tcp::socket>;

class Guest final : public Joining {
 public:
  Guest(asio::io_context& io, const JoinOptions& options) : Joining(io, options), retry_(io) {}

 protected:
  void begin() override;
  std::exception_ptr late() override;

 private:
  bool find_host();
  void try_host();
  void try_next(std::size_t candidate);
  void retry_host(const std::string& reason);
  void shake_hands(tcp::socket socket);
  bool open_door(const asio::ip::address& local);
  void on_host_message(const ControlMessage& message);
  void build_mesh(const Json& table);
  void call_peer(Rank peer, const tcp::endpoint& end);
  void shake_peer(Rank peer, const tcp::endpoint& end, tcp::socket socket);
  void let_in(const std::shared_ptr<ControlLink>& link, const Json& hello);
  void joined(Rank peer, const std::shared_ptr<ControlLink>& link);
  void fail_for_all(const std::string& text);
  std::string open_peers() const;

  asio::steady_timer retry_;
  int attempts_ = 0;
  std::vector<tcp::endpoint> ends_;   // where rank 0 may be
  std::string where_, last_problem_;  // for error texts
  bool host_is_here_ = false;         // somebody accepted a connection there
  std::shared_ptr<ControlLink> host_;
  std::shared_ptr<Doorkeeper> door_;
  std::vector<std::pair<std::shared_ptr<ControlLink>, Json>> early_;  // before the table came
  std::string token_;
  std::vector<Rank> missing_;
  std::vector<std::string> peer_problem_;
};

void Guest::begin() {
  where_ = options_.address;
  peer_problem_.resize(options_.size);
  if (!options_.interface.empty())  // refuse early what cannot work later
    address_of_interface(options_.interface, asio::ip::address_v4());
  if (options_.address.empty()) where_ = options_.publish("");
  try_host();
}

/// Where rank 0 listens. A file may not be there yet.
bool Guest::find_host() {
  auto text = where_;
  if (text.starts_with("file:")) {
    std::ifstream file(text.substr(5));
    if (!std::getline(file, text) || text.empty()) {
      last_problem_ = "the file is not there yet";
      return false;
    }
  }
  ends_ = resolve(io_, parse_host_port(text));
  return true;
}

void Guest::try_host() {
  if (done_) return;
  if (!find_host()) return retry_host(last_problem_);
  try_next(0);
}

void Guest::try_next(std::size_t candidate) {
  const auto socket = std::make_shared<tcp::socket>(io_);
  const auto end = ends_[candidate];
  const auto limit = std::make_shared<asio::steady_timer>(io_);
  limit->expires_after(std::chrono::seconds(2));  // a lost SYN must not cost the whole T
  limit->async_wait([socket, limit](asio::error_code stopped) {
    asio::error_code ignored;
    if (!stopped) socket->close(ignored);
  });
  socket->async_connect(end, [this, socket, limit, candidate, end](asio::error_code error) {
    limit->cancel();
    if (!error) return shake_hands(std::move(*socket));
    const auto problem = fmt::format("connect to {}: {}", text_of_endpoint(end), error.message());
    if (candidate + 1 < ends_.size()) return try_next(candidate + 1);
    retry_host(problem);
  });
}

void Guest::retry_host(const std::string& reason) {
  last_problem_ = reason;
  retry_.expires_after(std::chrono::milliseconds(std::min(250, 20 << std::min(attempts_++, 4))));
  retry_.async_wait([this](asio::error_code stopped) {
    if (stopped || done_) return;
    try {
      try_host();
    } catch (...) {
      finish(std::current_exception());
    }
  });
}

void Guest::shake_hands(tcp::socket socket) {
  prepare_socket(socket, options_.timeout_s);
  // A connection to a free port of this host can meet itself.
  asio::error_code error;
  if (socket.local_endpoint(error) == socket.remote_endpoint(error))
    return retry_host("nobody there");
  host_is_here_ = true;
  const auto local = socket.local_endpoint(error).address();
  host_ = std::make_shared<ControlLink>(std::move(socket));
  host_->trust();
  last_problem_ = "no answer to the hand-shake";
  host_->listen([this](const ControlMessage& message) { on_host_message(message); },
                [this](const std::string& reason) {
                  if (token_.empty()) return retry_host("hand-shake: " + reason);
                  fail_for_all("the connection to rank 0 was lost: " + reason);
                });
  if (!open_door(local)) return;
  auto greeting = hello("join");
  greeting["port"] = door_->endpoint().port();
  if (!options_.interface.empty()) greeting["address"] = group_.addresses[options_.rank];
  host_->send({ControlType::hello, greeting, ""});
  host_->start();
}

bool Guest::open_door(const asio::ip::address& local) {
  auto address = local;
  try {
    if (!options_.interface.empty()) address = address_of_interface(options_.interface, local);
  } catch (...) {
    finish(std::current_exception());
    return false;
  }
  group_.addresses[options_.rank] = text_of_address(address);
  if (door_) door_->close();
  door_ = std::make_shared<Doorkeeper>(io_, options_.timeout_s);
  std::string problem;
  for (int port = options_.port_first; port <= options_.port_last; ++port) {
    try {
      door_->open({address, static_cast<std::uint16_t>(port)});
      door_->start([this](const auto& link, const Json& greeting) { let_in(link, greeting); });
      return true;
    } catch (const asio::system_error& error) {
      problem = error.code().message();
    }
  }
  finish(std::make_exception_ptr(CommError(
      fmt::format("{}: listen for ranks on {}, ports {} to {}: {}", title(),
                  text_of_address(address), options_.port_first, options_.port_last, problem))));
  return false;
}

void Guest::on_host_message(const ControlMessage& message) {
  switch (message.type) {
    case ControlType::refuse: {
      auto text = message.head.value("text", "");
      if (group_.run_id.empty() && message.head.value("config", false))
        text += " (this rank was given no run id)";
      // Rank 0's time may be up a moment before ours; which connection is missing, only we know.
      if (const auto open = open_peers(); !open.empty()) text += "; this rank: " + open;
      return finish(error_of({0, text, message.head.value("config", false)}, title()));
    }
    case ControlType::progress:
      missing_ = get<std::vector<Rank>>(message.head, "missing", "progress");
      last_problem_.clear();
      return;
    case ControlType::table:
      return build_mesh(message.head);
    case ControlType::go:
      if (token_.empty()) throw DataError("told to go before the table of addresses has come");
      host_->listen(nullptr, nullptr);
      group_.links[0] = host_;
      if (group_.addresses[0].empty()) group_.addresses[0] = host_->remote_address();
      door_->close();
      return finish();
    default:
      return;
  }
}

void Guest::build_mesh(const Json& table) {
  if (!token_.empty()) return;
  group_.run_id = get<std::string>(table, "run_id", "table");
  const auto addresses = get<std::vector<std::string>>(table, "addresses", "table");
  const auto ports = get<std::vector<int>>(table, "ports", "table");
  if (addresses.size() != group_.links.size() || ports.size() != group_.links.size())
    throw DataError("the table of addresses has another size");
  group_.addresses = addresses;
  token_ = get<std::string>(table, "token", "table");
  for (Rank peer = 1; peer < options_.rank; ++peer) {
    asio::error_code error;
    const auto address = asio::ip::make_address(addresses[peer], error);
    if (error || ports[peer] < 1 || ports[peer] > 65535)
      throw DataError(
          fmt::format("the address of rank {} is {}:{}", peer, addresses[peer], ports[peer]));
    call_peer(peer, {address, static_cast<std::uint16_t>(ports[peer])});
  }
  for (const auto& [link, greeting] : std::exchange(early_, {})) let_in(link, greeting);
  joined(options_.rank, nullptr);
}

void Guest::call_peer(Rank peer, const tcp::endpoint& end) {
  peer_problem_[peer] = fmt::format("rank {} at {}: connect", peer, text_of_endpoint(end));
  const auto socket = std::make_shared<tcp::socket>(io_);
  asio::error_code error;
  socket->open(end.protocol(), error);
  const auto own = asio::ip::make_address(group_.addresses[options_.rank], error);
  // From the interface that was chosen; if that cannot reach the peer, the connect says so.
  if (!error && own.is_v4() == end.address().is_v4()) socket->bind({own, 0}, error);
  socket->async_connect(end, [this, socket, peer, end](asio::error_code failed) {
    if (done_) return;
    if (!failed) return shake_peer(peer, end, std::move(*socket));
    peer_problem_[peer] =
        fmt::format("rank {} at {}: connect: {}", peer, text_of_endpoint(end), failed.message());
    const auto timer = std::make_shared<asio::steady_timer>(io_);
    timer->expires_after(std::chrono::milliseconds(100));
    timer->async_wait([this, timer, peer, end](asio::error_code) {
      if (!done_) call_peer(peer, end);
    });
  });
}

void Guest::shake_peer(Rank peer, const tcp::endpoint& end, tcp::socket socket) {
  prepare_socket(socket, options_.timeout_s);
  const auto link = std::make_shared<ControlLink>(std::move(socket));
  peer_problem_[peer] =
      fmt::format("rank {} at {}: no answer to the hand-shake", peer, text_of_endpoint(end));
  link->trust();
  link->listen(
      [this, link = std::weak_ptr(link), peer](const ControlMessage& message) {
        if (message.type == ControlType::ready) joined(peer, link.lock());
      },
      [this, peer, end](const std::string& reason) {
        fail_for_all(
            fmt::format("rank {} at {}: hand-shake: {}", peer, text_of_endpoint(end), reason));
      });
  auto greeting = hello("mesh");
  greeting["token"] = token_;
  link->send({ControlType::hello, greeting, ""});
  link->start();
}

void Guest::let_in(const std::shared_ptr<ControlLink>& link, const Json& greeting) {
  if (token_.empty()) {
    if (early_.size() < group_.links.size()) early_.emplace_back(link, greeting);
    return;
  }
  const Rank peer = greeting.value("rank", -1);
  if (greeting.value("token", "") != token_ || peer <= options_.rank || peer >= options_.size ||
      group_.links[peer])
    return link->close();
  link->trust();
  link->send({ControlType::ready, Json::object(), ""});
  joined(peer, link);
}

void Guest::joined(Rank peer, const std::shared_ptr<ControlLink>& link) {
  if (link) {
    link->listen(nullptr, nullptr);
    group_.links[peer] = link;
    peer_problem_[peer].clear();
  }
  for (Rank r = 1; r < options_.size; ++r)
    if (r != options_.rank && !group_.links[r]) return;
  host_->send({ControlType::ready, Json::object(), ""});
}

void Guest::fail_for_all(const std::string& text) {
  if (done_) return;
  if (host_ && host_->open())
    host_->send({ControlType::fault, {{"text", text}, {"config", false}}, ""});
  finish(error_of({-1, text}, title()));
}

/// Who is not connected to this rank, and why; empty before the table is here.
std::string Guest::open_peers() const {
  std::vector<std::string> open;
  for (Rank r = 1; r < options_.size && !token_.empty(); ++r)
    if (r != options_.rank && !group_.links[r])
      open.push_back(peer_problem_[r].empty() ? fmt::format("rank {} did not connect", r)
                                              : peer_problem_[r]);
  return fmt::format("{}", fmt::join(open, "; "));
}

std::exception_ptr Guest::late() {
  if (!token_.empty()) {
    auto text = open_peers();
    if (text.empty()) text = "waiting for the other ranks to connect among themselves";
    fail_for_all(fmt::format("{} (within {:.1f} s)", text, options_.timeout_s));
    return nullptr;
  }
  if (last_problem_.empty()) {
    const int here = options_.size - static_cast<int>(missing_.size());
    return error_of({-1, fmt::format("{} of {} ranks came to {} within {:.1f} s; missing: rank {}",
                                     here, options_.size, where_, options_.timeout_s,
                                     fmt::join(missing_, ", rank "))},
                    title());
  }
  auto text = fmt::format("rank 0 at {} was not reached within {:.1f} s: {}", where_,
                          options_.timeout_s, last_problem_);
  if (host_is_here_ && !ends_.empty()) {
    text +=
        "; somebody accepts connections there, perhaps no Thinwire rank, so that rank 0 could "
        "not listen for rendezvous";
    const bool here = !interface_of(text_of_address(ends_[0].address())).empty();
    if (const auto holder = here ? port_holder(ends_[0].port()) : ""; !holder.empty())
      text += "; the port is held by " + holder;
  }
  return error_of({0, text}, title());
}

}  // namespace

std::unique_ptr<Joining> join_as_guest(asio::io_context& io, const JoinOptions& options) {
  return std::make_unique<Guest>(io, options);
}

}  // namespace thinwire
