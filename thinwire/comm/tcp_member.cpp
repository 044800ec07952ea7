// SPDX-License-Identifier: Apache-2.0
// A membership over TCP: the control connections after joining, on one thread.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <signal.h>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <cmath>
#include <future>
#include <thread>

#include "thinwire/comm/member_base.h"
#include "thinwire/comm/net_address.h"
#include "thinwire/comm/rendezvous.h"
#include "thinwire/core/error.h"
#include "thinwire/core/notice.h"

namespace thinwire {
namespace {

constexpr auto kFarewellTime = std::chrono::milliseconds(100);

class TcpMember final : public MemberBase, public std::enable_shared_from_this<TcpMember> {
 public:
  TcpMember(std::shared_ptr<asio::io_context> io, const JoinOptions& options, JoinedGroup group);
  void start();
  /// The last owner has gone: says farewell and ends the thread.
  void retire();
  std::string address_of(Rank rank) const override { return group_.addresses.at(rank); }
  std::string describe() const override;
  Seconds silent_s(Rank rank) const override;
  void leave() override;

 protected:
  void send_part(std::int64_t round, const std::string& topic, std::string_view blob) override;
  void spread(const Fault& fault) override;

 private:
  void beat();
  Json last_call() const;
  void take_call(Rank from, const Json& head);
  void on_message(Rank from, ControlMessage message);
  void on_closed(Rank from, const std::string& reason);
  void send_to_all(const ControlMessage& message);
  void say_farewell();
  void stop_when_idle();
  void refuse_late_comer(const std::shared_ptr<ControlLink>& link, const Json& hello);
  bool on_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  const std::shared_ptr<asio::io_context> io_;  // outlives the sockets
  JoinedGroup group_;
  asio::steady_timer beat_timer_, stop_timer_;
  const Clock::duration beat_every_;
  std::vector<std::atomic<std::int64_t>> seen_ns_;  // last sign of life, by rank
  std::atomic<bool> leaving_{false};
  bool farewell_said_ = false;  // on the thread
  std::thread thread_;
};

std::int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

TcpMember::TcpMember(std::shared_ptr<asio::io_context> io, const JoinOptions& options,
                     JoinedGroup group)
    : MemberBase(options.rank, options.size, group.run_id, options.timeout_s),
      io_(std::move(io)),
      group_(std::move(group)),
      beat_timer_(*io_),
      stop_timer_(*io_),
      beat_every_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(0.25, options.timeout_s / 4)))),
      seen_ns_(options.size) {}

void TcpMember::start() {
  for (Rank r = 0; r < size(); ++r) seen_ns_[r] = now_ns();
  if (group_.door)
    group_.door->start(
        [this](const auto& link, const Json& hello) { refuse_late_comer(link, hello); });
  asio::post(*io_, [this] {
    for (Rank r = 0; r < size(); ++r)
      if (const auto& link = group_.links[r])
        link->listen([this, r](ControlMessage message) { on_message(r, std::move(message)); },
                     [this, r](const std::string& reason) { on_closed(r, reason); });
    beat();
  });
  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, self = shared_from_this(), io = io_] {
    io->restart();
    const auto work = asio::make_work_guard(*io);
    while (!io->stopped()) try {
        io->run();
      } catch (const std::exception& error) {  // out of memory, say: the group ends in words
        fail({rank(), fmt::format("rank {}: control thread: {}", rank(), error.what())});
      }
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void TcpMember::retire() {
  if (unwinding() && !leaving_)
    fail({rank(), fmt::format("rank {} died: an exception ended it", rank())});
  leaving_ = true;
  asio::post(*io_, [this] { stop_when_idle(); });
  if (on_own_thread())
    thread_.detach();  // the last owner was a callback
  else
    thread_.join();  // at most kFarewellTime
}

/// Ends the thread once the farewells are with the kernel, or after a moment if a peer takes none.
void TcpMember::stop_when_idle() {
  say_farewell();
  if (group_.door) group_.door->close();
  beat_timer_.cancel();
  const auto begin = Clock::now();
  const auto step = std::make_shared<std::function<void()>>();
  *step = [this, begin, weak = std::weak_ptr(step)] {
    bool idle = true;
    for (const auto& link : group_.links) idle = idle && (!link || !link->open() || link->idle());
    const auto again = weak.lock();
    if (idle || Clock::now() - begin > kFarewellTime || !again) {
      for (const auto& link : group_.links)
        if (link) link->close();
      io_->stop();
      return;
    }
    stop_timer_.expires_after(std::chrono::milliseconds(1));
    stop_timer_.async_wait([again](asio::error_code) { (*again)(); });
  };
  (*step)();
}

void TcpMember::say_farewell() {
  if (std::exchange(farewell_said_, true)) return;
  send_to_all({ControlType::farewell, Json::object(), ""});
}

void TcpMember::leave() {
  if (leaving_.exchange(true)) return;
  if (on_own_thread()) return say_farewell();
  const auto out = std::make_shared<std::promise<void>>();
  auto done = out->get_future();
  asio::post(*io_, [this, out] {
    say_farewell();
    out->set_value();
  });
  done.wait_for(kFarewellTime);
}

/// The last call of this rank, as it travels.
Json TcpMember::last_call() const {
  const auto call = started_by(rank());
  if (!call) return Json::object();
  return {{"kind", static_cast<int>(call->kind)},
          {"exchange", call->id.exchange},
          {"step", call->id.step},
          {"part", call->id.part}};
}

void TcpMember::take_call(Rank from, const Json& head) {
  if (!head.contains("kind")) return;
  const int kind = get<int>(head, "kind", "last call");
  if (kind < 0 || kind > static_cast<int>(CallKind::barrier))
    throw DataError("last call: no such kind");
  take_started(from, {static_cast<CallKind>(kind),
                      {get<std::int32_t>(head, "exchange", "last call"),
                       get<std::int64_t>(head, "step", "last call"),
                       get<std::int32_t>(head, "part", "last call")}});
}

void TcpMember::beat() {
  const ControlMessage message{ControlType::beat, last_call(), ""};
  for (const auto& link : group_.links)
    if (link && link->open() && link->idle()) link->send(message);
  beat_timer_.expires_after(beat_every_);
  beat_timer_.async_wait([this](asio::error_code stopped) {
    if (!stopped) beat();
  });
}

void TcpMember::on_message(Rank from, ControlMessage message) {
  seen_ns_[from] = now_ns();
  const Json& head = message.head;
  switch (message.type) {
    case ControlType::beat:
      return take_call(from, head);
    case ControlType::part:
      take_call(from, head);
      return take_part(from, get<std::int64_t>(head, "round", "part"),
                       get<std::string>(head, "topic", "part"), std::move(message.blob));
    case ControlType::fault: {
      const Rank culprit = get<int>(head, "rank", "fault");
      if (culprit < -1 || culprit >= size()) throw DataError("fault: no such rank");
      fail({culprit, get<std::string>(head, "text", "fault"), get<bool>(head, "config", "fault")});
      return;
    }
    case ControlType::farewell:
      return take_farewell(from);
    default:
      return;
  }
}

void TcpMember::on_closed(Rank from, const std::string& reason) {
  if (leaving_ || has_left(from)) return;
  fail({from, fmt::format("rank {} at {} died: its connection ended without a farewell ({})", from,
                          group_.addresses[from], reason)});
}

void TcpMember::send_to_all(const ControlMessage& message) {
  for (const auto& link : group_.links)
    if (link && link->open()) link->send(message);
}

void TcpMember::send_part(std::int64_t round, const std::string& topic, std::string_view blob) {
  if (blob.size() > ControlLink::kBlob)
    throw UnsupportedError(fmt::format("all_gather of '{}': at most {} bytes a rank, got {}", topic,
                                       ControlLink::kBlob, blob.size()));
  ControlMessage message{ControlType::part, last_call(), std::string(blob)};
  message.head["round"] = round;
  message.head["topic"] = topic;
  asio::post(*io_, [this, message = std::move(message)] { send_to_all(message); });
}

void TcpMember::spread(const Fault& fault) {
  asio::post(*io_, [this, fault] {
    send_to_all({ControlType::fault,
                 {{"rank", fault.rank}, {"text", fault.text}, {"config", fault.config}},
                 ""});
    deliver();
  });
}

void TcpMember::refuse_late_comer(const std::shared_ptr<ControlLink>& link, const Json& hello) {
  const auto run = hello.value("run_id", "");
  link->send(
      refusal(fmt::format("run '{}' is complete and holds {}; rank {} of run '{}' is not part "
                          "of it",
                          run_id(), text_of_endpoint(group_.door->endpoint()),
                          hello.value("rank", -1), run.empty() ? "(no id given)" : run),
              true, run_id()));
  link->start();
  link->close_when_idle();
}

Seconds TcpMember::silent_s(Rank of) const {
  if (of == rank()) return 0;
  return 1e-9 * static_cast<double>(now_ns() - seen_ns_.at(of));
}

std::string TcpMember::describe() const {
  const auto& local = group_.addresses[rank()];
  std::vector<std::string> peers;
  for (Rank r = 0; r < size(); ++r)
    if (r != rank()) peers.push_back(fmt::format("rank {} {}", r, group_.addresses[r]));
  const auto name = interface_of(local);
  return fmt::format("interface {}, local address {}, peers: {}", name.empty() ? "unknown" : name,
                     local, fmt::join(peers, ", "));
}

void check_options(const JoinOptions& options) {
  const auto wrong = [](const std::string& text) { throw ConfigError("join: " + text); };
  if (options.size < 1) wrong(fmt::format("size must be at least 1, got {}", options.size));
  if (options.rank < 0 || options.rank >= options.size)
    wrong(fmt::format("rank must be in 0..{}, got {}", options.size - 1, options.rank));
  if (!std::isfinite(options.timeout_s) || options.timeout_s <= 0)
    wrong(fmt::format("timeout_s must be above 0, got {}", options.timeout_s));
  if (options.port_first < 0 || options.port_last > 65535 || options.port_first > options.port_last)
    wrong(fmt::format("ports must be a range within 1..65535, got {}-{}", options.port_first,
                      options.port_last));
  if (options.run_id.size() > 256)
    wrong(fmt::format("run_id must have at most 256 bytes, got {}", options.run_id.size()));
  if (options.size > 1 && options.address.empty() && !options.publish)
    wrong(fmt::format("an address is needed for {} ranks, HOST:PORT or file:PATH", options.size));
}

}  // namespace

std::shared_ptr<Membership> join_group(const JoinOptions& options) {
  check_options(options);
  if (options.size == 1)
    return local_group(1, options.timeout_s, options.run_id.empty() ? "alone" : options.run_id)[0];
  if (!options.interface.empty()) address_of_interface(options.interface, asio::ip::address_v4());
  const auto io = std::make_shared<asio::io_context>(1);
  const auto joining = options.rank == 0 ? join_as_host(*io, options) : join_as_guest(*io, options);
  auto member = std::make_shared<TcpMember>(io, options, joining->run());
  member->start();
  // The thread shares the member, so that it may be dropped anywhere, in a callback too.
  std::shared_ptr<Membership> shared(member.get(), [member](Membership*) mutable {
    member->retire();
    member.reset();
  });
  notice(fmt::format("rank {} of {}: {}", options.rank, options.size, shared->describe()));
  return shared;
}

}  // namespace thinwire
