// SPDX-License-Identifier: Apache-2.0
// Internal to comm: how ranks find each other. Rank 0 listens and collects a hello of every other
// rank; then it hands out a table of addresses, the others connect among themselves, each tells
// rank 0 that it is ready, and "go" ends the joining on all ranks. No rank is told to go before
// every hand-shake has been answered.
#pragma once
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "thinwire/comm/control_link.h"
#include "thinwire/comm/membership.h"

namespace thinwire {

/// A listening socket that lets in only who says a proper hello in time.
class Doorkeeper : public std::enable_shared_from_this<Doorkeeper> {
 public:
  using OnHello = std::function<void(const std::shared_ptr<ControlLink>&, const Json& hello)>;
  Doorkeeper(asio::io_context& io, double timeout_s);
  /// Throws asio::system_error.
  void open(const asio::ip::tcp::endpoint& end);
  void start(OnHello on_hello);  ///< called again: another listener takes over
  void close();
  asio::ip::tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }
  /// "10.0.0.9:4000 connected, but its hand-shake stopped after 16 bytes", for error texts.
  std::vector<std::string> strangers() const;

 private:
  void accept_next();
  void greet(asio::ip::tcp::socket socket);
  void drop(const std::shared_ptr<ControlLink>& link, const std::string& why);

  asio::io_context& io_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const double timeout_s_;
  OnHello on_hello_;
  std::set<std::shared_ptr<ControlLink>> pending_;
  std::vector<std::string> dropped_;
};

/// What joining yields. No handler runs between its end and the start of the membership's thread.
struct JoinedGroup {
  std::string run_id;
  std::vector<std::shared_ptr<ControlLink>> links;  ///< by rank; null for oneself
  std::vector<std::string> addresses;               ///< by rank
  std::shared_ptr<Doorkeeper> door;                 ///< rank 0 keeps it, to refuse late-comers
};

/// One side of the rendezvous. Single use, on one thread.
class Joining {
 public:
  Joining(asio::io_context& io, const JoinOptions& options);
  virtual ~Joining() = default;
  /// Blocks until all have joined, or throws.
  JoinedGroup run();

 protected:
  virtual void begin() = 0;
  /// The text for the deadline.
  virtual std::exception_ptr late() = 0;
  void finish(std::exception_ptr error = nullptr);
  std::string title() const;  ///< "join, rank 1 of 3"
  Json hello(const char* purpose) const;

  asio::io_context& io_;
  const JoinOptions& options_;
  const std::string version_;
  const Deadline begin_ = Clock::now();
  JoinedGroup group_;
  bool done_ = false;

 private:
  std::exception_ptr error_;
};

std::unique_ptr<Joining> join_as_host(asio::io_context& io, const JoinOptions& options);
std::unique_ptr<Joining> join_as_guest(asio::io_context& io, const JoinOptions& options);

/// The answer to a hello that asks who listens here, or of a rank of another run.
ControlMessage refusal(const std::string& text, bool config, const std::string& run_id);
/// The first difference between a hello and what this side expects; empty if there is none.
std::string hello_difference(const Json& theirs, const Json& ours);

}  // namespace thinwire
