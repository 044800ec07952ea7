// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/control_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstring>

#include "thinwire/comm/net_address.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

constexpr std::uint32_t kMagic = 0x01435754;  // "TWC\1", little-endian as every number here

/// Leaves out what is nested deeper than any message of ours: printing it, in an error text say,
/// would take a level of the stack each.
bool not_too_deep(int depth, Json::parse_event_t, const Json&) { return depth <= 8; }

}  // namespace

ControlLink::ControlLink(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {
  asio::error_code error;
  if (const auto end = socket_.remote_endpoint(error); !error) {
    remote_ = text_of_endpoint(end);
    remote_address_ = text_of_address(end.address());
  }
  if (const auto end = socket_.local_endpoint(error); !error)
    local_address_ = text_of_address(end.address());
}

void ControlLink::start() { read_head(); }

void ControlLink::listen(OnMessage on_message, OnClosed on_closed) {
  on_message_ = std::move(on_message);
  on_closed_ = std::move(on_closed);
  if (held_) {
    auto message = std::move(*held_);
    held_.reset();
    deliver(std::move(message));
  } else if (end_) {
    const auto reason = *end_;
    end_.reset();
    ended(reason);
  }
}

void ControlLink::read_head() {
  if (!socket_.is_open()) return;
  // Who stops in the middle is described by how far it came.
  const auto rest = [self = shared_from_this()](asio::error_code error, std::size_t n) {
    self->in_progress_ = static_cast<std::int64_t>(n);
    return error ? std::size_t{0} : sizeof self->in_head_ - n;
  };
  asio::async_read(socket_, asio::buffer(in_head_), rest,
                   [self = shared_from_this()](asio::error_code error, std::size_t n) {
                     self->in_progress_ = 0;
                     self->received_ += static_cast<std::int64_t>(n);
                     if (error == asio::error::eof) return self->ended("closed");
                     if (error) return self->ended(error.message());
                     self->read_body();
                   });
}

void ControlLink::read_body() {
  const auto [magic, type, head, blob] = in_head_;
  if (magic != kMagic || type < 1 || type > static_cast<std::uint32_t>(ControlType::farewell))
    return ended("it sent bytes that are not Thinwire's");
  if (head > (trusted_ ? kHead : kShyHead) || blob > (trusted_ ? kBlob : 0))
    return ended(fmt::format("it sent a message of {} + {} bytes", head, blob));
  in_body_.resize(static_cast<std::size_t>(head) + blob);
  asio::async_read(socket_, asio::buffer(in_body_),
                   [self = shared_from_this()](asio::error_code error, std::size_t n) {
                     self->received_ += static_cast<std::int64_t>(n);
                     if (error == asio::error::eof) return self->ended("closed");
                     if (error) return self->ended(error.message());
                     ControlMessage message;
                     message.type = static_cast<ControlType>(self->in_head_[1]);
                     const auto head_bytes = self->in_head_[2];
                     message.head =
                         Json::parse(self->in_body_.data(), self->in_body_.data() + head_bytes,
                                     not_too_deep, false);
                     if (!message.head.is_object())
                       return self->ended("it sent a message that cannot be read");
                     message.blob = self->in_body_.substr(head_bytes);
                     self->deliver(std::move(message));
                   });
}

void ControlLink::deliver(ControlMessage message) {
  if (!socket_.is_open()) return;
  if (!on_message_) {
    held_ = std::move(message);  // reading goes on when somebody listens
    return;
  }
  const auto self = shared_from_this();
  const auto listener = on_message_;  // it may install another
  try {
    listener(std::move(message));
  } catch (const DataError& error) {
    return ended(fmt::format("it sent a message that cannot be read: {}", error.what()));
  } catch (const Json::exception& error) {  // a value of another type than it should have
    return ended(fmt::format("it sent a message that cannot be read: {}", error.what()));
  }
  read_head();
}

void ControlLink::send(const ControlMessage& message) {
  if (!socket_.is_open()) return;
  // Texts of users may hold anything; bytes that are no UTF-8 are replaced.
  const auto head = message.head.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::array<std::uint32_t, 4> sizes{kMagic, static_cast<std::uint32_t>(message.type),
                                           static_cast<std::uint32_t>(head.size()),
                                           static_cast<std::uint32_t>(message.blob.size())};
  std::string bytes(sizeof sizes, '\0');
  std::memcpy(bytes.data(), sizes.data(), sizeof sizes);
  queue_.push_back(std::make_shared<const std::string>(bytes + head + message.blob));
  if (queue_.size() == 1) write_next();
}

void ControlLink::write_next() {
  const auto bytes = queue_.front();
  asio::async_write(socket_, asio::buffer(*bytes),
                    [self = shared_from_this(), bytes](asio::error_code error, std::size_t) {
                      if (self->queue_.empty()) return;  // closed meanwhile
                      self->queue_.pop_front();
                      // The end is told by the reading side, after all that the peer has sent.
                      if (error) self->queue_.clear();
                      if (!self->queue_.empty()) return self->write_next();
                      if (self->close_when_idle_) self->close();
                    });
}

void ControlLink::ended(const std::string& reason) {
  if (!socket_.is_open()) return;
  if (!on_closed_) {
    end_ = reason;
    return;
  }
  const auto self = shared_from_this();
  const auto listener = on_closed_;
  close();
  listener(reason);
}

void ControlLink::close() {
  asio::error_code ignored;
  socket_.close(ignored);
  queue_.clear();
  on_message_ = nullptr;
  on_closed_ = nullptr;
}

void ControlLink::close_when_idle() {
  on_message_ = [](const ControlMessage&) {};
  on_closed_ = [](const std::string&) {};
  if (queue_.empty())
    close();
  else
    close_when_idle_ = true;
}

void prepare_socket(asio::ip::tcp::socket& socket, double timeout_s) {
  const int fd = socket.native_handle();
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const unsigned int silence_ms = static_cast<unsigned int>(std::clamp(timeout_s, 1.0, 1e6) * 1000);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

}  // namespace thinwire
