// SPDX-License-Identifier: Apache-2.0
// What both sides of the rendezvous share: the door, the hello, and the wait with its deadline.
#include "thinwire/comm/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "thinwire/comm/net_address.h"
#include "thinwire/core/error.h"
#include "thinwire/core/version.h"

namespace thinwire {
namespace {

constexpr int kProtocol = 1;
constexpr std::size_t kMostPending = 512, kMostDropped = 8;

}  // namespace

Doorkeeper::Doorkeeper(asio::io_context& io, double timeout_s)
    : io_(io), acceptor_(io), pause_(io), timeout_s_(std::min(timeout_s, 10.0)) {}

void Doorkeeper::open(const asio::ip::tcp::endpoint& end) {
  try {
    acceptor_.open(end.protocol());
    ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
    acceptor_.set_option(asio::socket_base::reuse_address(true));
    acceptor_.bind(end);
    acceptor_.listen();
  } catch (const asio::system_error&) {
    close();
    throw;
  }
}

void Doorkeeper::start(OnHello on_hello) {
  const bool first = !on_hello_;
  on_hello_ = std::move(on_hello);
  if (first) accept_next();
}

void Doorkeeper::close() {
  asio::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (const auto& link : pending_) link->close();
  pending_.clear();
  on_hello_ = nullptr;
}

void Doorkeeper::accept_next() {
  acceptor_.async_accept(
      [self = shared_from_this()](asio::error_code error, asio::ip::tcp::socket socket) {
        if (!self->acceptor_.is_open()) return;
        if (!error) {
          self->greet(std::move(socket));
          return self->accept_next();
        }
        // Out of descriptors, or the peer is gone again: later, without spinning.
        self->pause_.expires_after(std::chrono::milliseconds(50));
        self->pause_.async_wait([self](asio::error_code stopped) {
          if (!stopped && self->acceptor_.is_open()) self->accept_next();
        });
      });
}

void Doorkeeper::greet(asio::ip::tcp::socket socket) {
  prepare_socket(socket, timeout_s_);
  const auto link = std::make_shared<ControlLink>(std::move(socket));
  if (pending_.size() >= kMostPending) return link->close();
  pending_.insert(link);
  const std::weak_ptr<ControlLink> weak = link;
  link->listen(
      [self = shared_from_this(), weak](const ControlMessage& message) {
        const auto link = weak.lock();
        if (!link || self->pending_.erase(link) == 0) return;
        if (message.type != ControlType::hello || !self->on_hello_) return link->close();
        link->listen(nullptr, nullptr);
        self->on_hello_(link, message.head);
      },
      [self = shared_from_this(), weak](const std::string& reason) {
        if (const auto link = weak.lock()) self->drop(link, reason);
      });
  const auto timer = std::make_shared<asio::steady_timer>(io_);
  timer->expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_)));
  timer->async_wait([self = shared_from_this(), weak, timer](asio::error_code) {
    if (const auto link = weak.lock(); link && self->pending_.contains(link)) {
      self->drop(link, "silent");
      link->close();
    }
  });
  link->start();
}

void Doorkeeper::drop(const std::shared_ptr<ControlLink>& link, const std::string& why) {
  if (pending_.erase(link) == 0 || dropped_.size() >= kMostDropped) return;
  dropped_.push_back(fmt::format("{} connected, but its hand-shake ended after {} bytes ({})",
                                 link->remote(), link->received_bytes(), why));
}

std::vector<std::string> Doorkeeper::strangers() const {
  auto words = dropped_;
  for (const auto& link : pending_)
    if (words.size() < 2 * kMostDropped)
      words.push_back(fmt::format("{} connected, but its hand-shake stopped after {} bytes",
                                  link->remote(), link->received_bytes()));
  return words;
}

Joining::Joining(asio::io_context& io, const JoinOptions& options)
    : io_(io),
      options_(options),
      version_(options.version.empty() ? std::string(kWireVersion) : options.version) {
  group_.run_id = options.run_id;
  group_.links.resize(options.size);
  group_.addresses.resize(options.size);
}

JoinedGroup Joining::run() {
  begin();
  const auto deadline = begin_ + (after(options_.timeout_s) - Clock::now());
  while (!done_) {
    if (Clock::now() >= deadline) finish(late());
    io_.restart();
    io_.run_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(100)));
    check_interrupt();
  }
  if (error_) {
    // What tells the others why is on its way in the next few milliseconds, or never.
    io_.restart();
    io_.run_for(std::chrono::milliseconds(50));
    std::rethrow_exception(error_);
  }
  return std::move(group_);
}

void Joining::finish(std::exception_ptr error) {
  if (done_) return;
  done_ = true;
  error_ = std::move(error);
  io_.stop();
}

std::string Joining::title() const {
  return fmt::format("join, rank {} of {}", options_.rank, options_.size);
}

Json Joining::hello(const char* purpose) const {
  return {{"purpose", purpose},  {"protocol", kProtocol}, {"run_id", group_.run_id},
          {"version", version_}, {"size", options_.size}, {"rank", options_.rank}};
}

ControlMessage refusal(const std::string& text, bool config, const std::string& run_id) {
  return {ControlType::refuse, {{"text", text}, {"config", config}, {"run_id", run_id}}, ""};
}

std::string hello_difference(const Json& theirs, const Json& ours) {
  const std::pair<const char*, const char*> compared[] = {
      {"protocol", "protocol"}, {"version", "library version"}, {"size", "group size"}};
  for (const auto& [key, words] : compared)
    if (!theirs.contains(key) || theirs[key] != ours[key])
      return fmt::format("{} differs between ranks: rank {} has {}, rank {} has {}", words,
                         ours["rank"].get<int>(), ours[key].dump(), theirs.value("rank", -1),
                         theirs.contains(key) ? theirs[key].dump() : "none");
  return "";
}

}  // namespace thinwire
