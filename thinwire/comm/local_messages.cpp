// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks that are threads. Both lists are short and searched in order, so that
// equal ids match in order.
#include <fmt/format.h>

#include <cstring>

#include "thinwire/comm/local_hub.h"

namespace thinwire {
namespace {
constexpr Bytes kEager = 64 * 1024;  // sends up to here need not wait for their receiver
}  // namespace

std::optional<std::size_t> LocalHub::match(const std::vector<LocalMessage>& waiting,
                                           const LocalMessage& message, bool sending) const {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const LocalMessage& send = sending ? message : waiting[i];
    const LocalMessage& recv = sending ? waiting[i] : message;
    if (send.id == recv.id && send.to == recv.to && (recv.from < 0 || recv.from == send.from))
      return i;
  }
  return std::nullopt;
}

/// Copies and completes both; what does not fit is said and nothing is copied.
std::string LocalHub::deliver(LocalMessage& send, LocalMessage& recv) {
  const auto sentence = [](const LocalMessage& m) {
    return fmt::format("{} {} ({} bytes)", m.buffer.count, to_string(m.buffer.dtype),
                       m.buffer.bytes());
  };
  if (send.buffer.count != recv.buffer.count || send.buffer.dtype != recv.buffer.dtype)
    return fmt::format(
        "the ranks disagree: rank {} started {} of {}, but rank {} started recv of {}",
        world(send.from), describe(CallKind::send, send.id), sentence(send), world(send.to),
        sentence(recv));
  if (recv.buffer.bytes() > 0)
    std::memmove(recv.buffer.data, send.copied ? send.copy.data() : send.buffer.data,
                 static_cast<std::size_t>(recv.buffer.bytes()));
  if (!send.copied) send.pending->complete();
  recv.pending->complete();
  return {};
}

Handle LocalHub::message(Rank rank, const std::shared_ptr<LocalHub>& self,
                         const std::shared_ptr<Membership>& group, Pool& pool, CallKind kind,
                         LocalMessage& message) {
  const bool sending = kind == CallKind::send;
  const Rank peer = sending ? message.to : message.from;
  const Signature signature{
      kind, message.id, message.buffer.dtype, message.buffer.count, Combine::replace, peer};
  std::shared_ptr<LocalPending> pending;
  std::string wrong;
  {
    std::unique_lock lock(mutex_);
    if (const auto over = over_) {
      lock.unlock();
      refuse(*over, signature, *group);
    }
    pending = take(self, group, pool, rank, signature, -1);
    message.pending = pending;
    auto& waiting = sending ? recvs_ : sends_;
    if (const auto found = match(waiting, message, sending)) {
      LocalMessage& other = waiting[*found];
      wrong = sending ? deliver(message, other) : deliver(other, message);
      if (wrong.empty()) {
        other.pending.reset();
        spare_.push_back(std::move(other));  // keeps its memory for the next short message
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(*found));
        return Handle(std::move(pending));
      }
    } else if (peer >= 0 && gone_[static_cast<std::size_t>(peer)]) {
      wrong = fmt::format("rank {} left the group before its {}", world(peer),
                          describe(sending ? CallKind::recv : CallKind::send, message.id));
    }
    if (sending && wrong.empty() && message.buffer.bytes() <= kEager) {
      if (!spare_.empty()) {
        message.copy = std::move(spare_.back().copy);
        spare_.pop_back();
      }
      const auto* bytes = static_cast<const std::byte*>(message.buffer.data);
      message.copy.assign(bytes, bytes + message.buffer.bytes());
      message.copied = true;
      message.pending.reset();
      pending->complete();
    }
    (sending ? sends_ : recvs_).push_back(std::move(message));
    claim(-1, wrong);
  }
  if (!wrong.empty()) group->fail({-1, wrong});
  return Handle(std::move(pending));
}

}  // namespace thinwire
