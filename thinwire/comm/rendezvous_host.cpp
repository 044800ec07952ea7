// SPDX-License-Identifier: Apache-2.0
// Rank 0 of the rendezvous.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <random>

#include "thinwire/comm/net_address.h"
#include "thinwire/comm/rendezvous.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"

namespace thinwire {
namespace {

using asio::ip::tcp;

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

class Host final : public Joining {
 public:
  using Joining::Joining;

 protected:
  void begin() override;
  std::exception_ptr late() override;

 private:
  void listen_for_rendezvous();
  void listen_at(const tcp::endpoint& end);
  [[noreturn]] void refuse_to_start(const tcp::endpoint& end, const std::string& reason);
  std::string ask_holder(const tcp::endpoint& end);
  void greet(const std::shared_ptr<ControlLink>& link, const Json& hello);
  void admit(const std::shared_ptr<ControlLink>& link, const Json& hello, Rank rank);
  void lost(Rank rank, const std::string& reason);
  void tell_progress();
  void hand_out_table();
  void on_message(Rank rank, const ControlMessage& message);
  void end_for_all(const std::string& text, bool config);
  std::vector<Rank> missing() const;

  std::vector<int> ports_ = std::vector<int>(options_.size);
  std::set<Rank> ready_;
  std::vector<std::string> foreign_;  // ranks of other runs that were refused
  std::string where_;
  bool table_out_ = false;
};

void Host::begin() {
  if (group_.run_id.empty()) group_.run_id = "run-" + random_word();
  listen_for_rendezvous();
  // The door stays after joining, when this object is gone: it then refuses everybody.
  group_.door->start([this](const auto& link, const Json& hello) { greet(link, hello); });
}

void Host::listen_for_rendezvous() {
  group_.door = std::make_shared<Doorkeeper>(io_, options_.timeout_s);
  if (!options_.address.empty() && !options_.address.starts_with("file:")) {
    // The first address of a name is the one that guests try first.
    listen_at(resolve(io_, parse_host_port(options_.address)).front());
    if (!options_.interface.empty())
      group_.addresses[0] = text_of_address(
          address_of_interface(options_.interface, group_.door->endpoint().address()));
    return;
  }
  auto address = default_address();
  if (!options_.interface.empty()) address = address_of_interface(options_.interface, address);
  asio::error_code busy;
  for (int port = options_.port_first; port <= options_.port_last; ++port) {
    try {
      group_.door->open({address, static_cast<std::uint16_t>(port)});
      busy.clear();
      break;
    } catch (const asio::system_error& error) {
      busy = error.code();
    }
  }
  if (busy)
    throw CommError(fmt::format("{}: listen for rendezvous on {}, ports {} to {}: {}", title(),
                                text_of_address(address), options_.port_first, options_.port_last,
                                busy.message()));
  where_ = text_of_endpoint(group_.door->endpoint());
  if (options_.address.empty())
    options_.publish(where_);
  else
    write_text(options_.address.substr(5), where_ + "\n");
}

void Host::listen_at(const tcp::endpoint& end) {
  where_ = text_of_endpoint(end);
  try {
    group_.door->open(end);
  } catch (const asio::system_error& error) {
    refuse_to_start(end, error.code().message());
  }
}

void Host::refuse_to_start(const tcp::endpoint& end, const std::string& reason) {
  const auto other = ask_holder(end);
  if (!other.empty())
    throw ConfigError(
        fmt::format("{}: {} is held by run '{}'; this is run '{}'. Give each run an address of its "
                    "own",
                    title(), where_, other, group_.run_id));
  const auto holder = port_holder(end.port());
  throw CommError(fmt::format("{}: listen for rendezvous on {}, port {}: {}{}{}", title(), where_,
                              end.port(), reason, holder.empty() ? "" : "; it is held by ",
                              holder));
}

/// The run id of the Thinwire run that listens at `end`; empty if it is something else.
std::string Host::ask_holder(const tcp::endpoint& end) {
  asio::io_context io;
  tcp::socket socket(io);
  std::string run_id;
  std::shared_ptr<ControlLink> link;
  socket.async_connect(end, [&](asio::error_code error) {
    if (error) return;
    link = std::make_shared<ControlLink>(std::move(socket));
    link->listen(
        [&](const ControlMessage& message) {
          if (message.type == ControlType::refuse) run_id = message.head.value("run_id", "");
          link->close();
        },
        [](const std::string&) {});
    link->send({ControlType::hello, hello("ask"), ""});
    link->start();
  });
  io.run_until(after(std::min(1.0, options_.timeout_s / 2)));
  if (link) link->close();
  return run_id;
}

void Host::greet(const std::shared_ptr<ControlLink>& link, const Json& theirs) {
  const auto refuse = [&](const std::string& text, bool config) {
    link->send(refusal(text, config, group_.run_id));
    link->start();
    link->close_when_idle();
  };
  const auto purpose = theirs.value("purpose", "");
  const auto run_id = theirs.value("run_id", "");
  if (purpose == "ask") return refuse("only asked", false);
  if (!run_id.empty() && run_id != group_.run_id) {
    const auto text =
        fmt::format("{} is held by run '{}', not by run '{}'", where_, group_.run_id, run_id);
    if (foreign_.size() < 8)
      foreign_.push_back(fmt::format("rank {} at {} is of run '{}', this is run '{}'",
                                     theirs.value("rank", -1), link->remote(), run_id,
                                     group_.run_id));
    return refuse(text, true);
  }
  if (const auto text = hello_difference(theirs, hello("join")); !text.empty()) {
    refuse(text, true);
    return end_for_all(text, true);
  }
  const Rank rank = theirs.value("rank", -1);
  std::string wrong;
  if (rank < 1 || rank >= options_.size)
    wrong = fmt::format("rank must be in 1..{}, got {} from {}", options_.size - 1, rank,
                        link->remote());
  else if (table_out_ || group_.links[rank])
    wrong = fmt::format("rank {} of run '{}' is there twice: at {} and at {}", rank, group_.run_id,
                        group_.links[rank]->remote(), link->remote());
  if (wrong.empty()) return admit(link, theirs, rank);
  refuse(wrong, true);
  if (!table_out_) end_for_all(wrong, true);
}

void Host::admit(const std::shared_ptr<ControlLink>& link, const Json& theirs, Rank rank) {
  link->trust();
  group_.links[rank] = link;
  const auto stated = theirs.value("address", "");
  group_.addresses[rank] = stated.empty() ? link->remote_address() : stated;
  ports_[rank] = theirs.value("port", 0);
  link->listen([this, rank](const ControlMessage& message) { on_message(rank, message); },
               [this, rank](const std::string& reason) { lost(rank, reason); });
  tell_progress();
  if (missing().empty()) hand_out_table();
}

void Host::lost(Rank rank, const std::string& reason) {
  // Before the table is out it may come again.
  if (!table_out_) {
    group_.links[rank] = nullptr;
    return;
  }
  end_for_all(fmt::format("rank {} at {} was lost while the group was being built: {}", rank,
                          group_.addresses[rank], reason),
              false);
}

void Host::tell_progress() {
  const ControlMessage message{ControlType::progress, {{"missing", missing()}}, ""};
  for (const auto& link : group_.links)
    if (link) link->send(message);
}

void Host::hand_out_table() {
  table_out_ = true;
  const ControlMessage table{ControlType::table,
                             {{"run_id", group_.run_id},
                              {"token", random_word()},
                              {"addresses", group_.addresses},
                              {"ports", ports_}},
                             ""};
  for (const auto& link : group_.links)
    if (link) link->send(table);
}

void Host::on_message(Rank rank, const ControlMessage& message) {
  if (message.type == ControlType::fault)
    return end_for_all(message.head.value("text", ""), message.head.value("config", false));
  if (message.type != ControlType::ready || !table_out_) return;
  ready_.insert(rank);
  if (static_cast<int>(ready_.size()) < options_.size - 1) return;
  for (const auto& link : group_.links)
    if (link) {
      link->listen(nullptr, nullptr);
      link->send({ControlType::go, Json::object(), ""});
    }
  if (group_.addresses[0].empty()) group_.addresses[0] = group_.links[1]->local_address();
  // A later run must not find the address of this one.
  if (options_.address.starts_with("file:")) std::remove(options_.address.c_str() + 5);
  finish();
}

void Host::end_for_all(const std::string& text, bool config) {
  if (done_) return;
  for (const auto& link : group_.links)
    if (link) {
      link->send(refusal(text, config, group_.run_id));
      link->close_when_idle();
    }
  finish(error_of({-1, text, config}, title()));
}

std::vector<Rank> Host::missing() const {
  std::vector<Rank> ranks;
  for (Rank r = 1; r < options_.size; ++r)
    if (!group_.links[r]) ranks.push_back(r);
  return ranks;
}

std::exception_ptr Host::late() {
  const auto absent = missing();
  std::string text;
  if (!absent.empty()) {
    text = fmt::format("{} of {} ranks came to {} within {:.1f} s; missing: rank {}",
                       options_.size - static_cast<int>(absent.size()), options_.size, where_,
                       options_.timeout_s, fmt::join(absent, ", rank "));
    for (const auto& stranger : group_.door->strangers()) text += "; " + stranger;
    for (const auto& rank : foreign_) text += "; refused: " + rank;
  } else {
    std::vector<std::string> slow;
    for (Rank r = 1; r < options_.size; ++r)
      if (!ready_.contains(r)) slow.push_back(fmt::format("rank {} at {}", r, group_.addresses[r]));
    text = fmt::format("not connected to all others within {:.1f} s (connect, hand-shake): {}",
                       options_.timeout_s, fmt::join(slow, ", "));
  }
  const bool config = !foreign_.empty();
  end_for_all(text, config);
  return nullptr;
}

}  // namespace

std::unique_ptr<Joining> join_as_host(asio::io_context& io, const JoinOptions& options) {
  return std::make_unique<Host>(io, options);
}

}  // namespace thinwire
