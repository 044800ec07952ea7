// SPDX-License-Identifier: Apache-2.0
// Internal to comm: one control connection and the messages on it. A message is a head of 16 bytes
// (magic, type, two lengths), a JSON object, and raw bytes. Sizes are checked before they are used;
// what does not fit closes the connection.
#pragma once
#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "thinwire/core/json.h"

namespace thinwire {

enum class ControlType : std::uint8_t {
  hello = 1,  ///< who connects, and what for
  refuse,     ///< why it may not
  progress,   ///< who has come so far
  table,      ///< addresses of all
  ready,      ///< connected to all; to a hello of the mesh: welcome
  go,         ///< everybody is ready
  beat,       ///< a sign of life, with the last call started
  part,       ///< one part of an all_gather
  fault,      ///< what ended the group
  farewell,   ///< leaving in order
};

struct ControlMessage {
  ControlType type = ControlType::beat;
  Json head = Json::object();
  std::string blob;
};

/// All of its functions, and its callbacks, run on the thread that runs the io_context.
class ControlLink : public std::enable_shared_from_this<ControlLink> {
 public:
  using OnMessage = std::function<void(ControlMessage)>;
  using OnClosed = std::function<void(const std::string& reason)>;
  /// Before the hand-shake little is believed.
  static constexpr std::uint32_t kShyHead = 4096, kHead = 4 << 20, kBlob = 64 << 20;

  explicit ControlLink(asio::ip::tcp::socket socket);
  void start();  ///< begins to read
  /// Takes over what arrives. Without listeners the first message, or the end, is kept for them.
  void listen(OnMessage on_message, OnClosed on_closed);
  void trust() { trusted_ = true; }  ///< larger messages are legal from now on
  void send(const ControlMessage& message);
  bool idle() const { return queue_.empty(); }  ///< all that was sent is with the kernel
  bool open() const { return socket_.is_open(); }
  void close();  ///< silently: no callback afterwards
  /// Closes once what was sent is out.
  void close_when_idle();
  const std::string& remote() const { return remote_; }                  ///< "10.0.0.2:4000"
  const std::string& remote_address() const { return remote_address_; }  ///< "10.0.0.2"
  const std::string& local_address() const { return local_address_; }
  std::int64_t received_bytes() const { return received_ + in_progress_; }

 private:
  void read_head();
  void read_body();
  void deliver(ControlMessage message);
  void write_next();
  void ended(const std::string& reason);

  asio::ip::tcp::socket socket_;
  OnMessage on_message_;
  OnClosed on_closed_;
  std::optional<ControlMessage> held_;
  std::optional<std::string> end_;
  bool trusted_ = false, close_when_idle_ = false;
  std::int64_t received_ = 0, in_progress_ = 0;
  std::array<std::uint32_t, 4> in_head_{};
  std::string in_body_;
  std::deque<std::shared_ptr<const std::string>> queue_;
  std::string remote_, remote_address_, local_address_;
};

/// CLOEXEC, no delay, and an end after `timeout_s` without an answer of the peer's host.
void prepare_socket(asio::ip::tcp::socket& socket, double timeout_s);

}  // namespace thinwire
