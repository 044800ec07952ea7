// SPDX-License-Identifier: Apache-2.0
// The progress thread, and what leaves on the connections: queues and gathered writes.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/core/error.h"

namespace thinwire::tcp {
namespace {

constexpr std::size_t kMostPieces = 16;
constexpr std::size_t kMostBytesAtOnce = 1 << 20;
constexpr std::size_t kInlineBytes = 64 << 10;

struct Gathered {
  std::array<FrameBytes, kMostPieces> headers;
  std::array<iovec, 2 * kMostPieces> vectors;
  std::size_t count = 0, pieces = 0, bytes = 0;
};

void add_vector(Gathered& out, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  out.vectors[out.count++] = {const_cast<void*>(data), bytes};
  out.bytes += bytes;
}

/// The pieces at the front of the queue, less what of the first is gone.
void gather(Peer& peer, Gathered& out) {
  for (std::size_t i = 0;
       i < std::min(peer.queue.size(), kMostPieces) && out.bytes < kMostBytesAtOnce; ++i) {
    Segment& segment = peer.queue.at(i).segment;
    const std::size_t skip = i == 0 ? peer.sent : 0;
    if (skip == 0) segment.frame.taken = peer.told = peer.taken;  // else the header is on its way
    encode(segment.frame, out.headers[i]);
    if (skip < kFrameBytes) add_vector(out, out.headers[i].data() + skip, kFrameBytes - skip);
    const std::size_t data_skip = skip > kFrameBytes ? skip - kFrameBytes : 0;
    if (segment.data) add_vector(out, segment.data + data_skip, segment.frame.length - data_skip);
    ++out.pieces;
  }
}

ssize_t send_gathered(int fd, Gathered& pieces) {
  msghdr message{};
  message.msg_iov = pieces.vectors.data();
  message.msg_iovlen = pieces.count;
  ssize_t sent;
  do sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

void SendQueue::insert(const Queued& item, std::size_t fixed) {
  std::size_t at = items_.size();
  while (at > head_ + fixed && items_[at - 1].order > item.order) --at;
  items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(at), item);
}

void SendQueue::pop_front() {
  ++head_;
  if (head_ == items_.size()) {
    items_.clear();
    head_ = 0;
  } else if (head_ >= 256) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
}

bool SendQueue::holds_calls() const {
  return std::any_of(items_.begin() + static_cast<std::ptrdiff_t>(head_), items_.end(),
                     [](const Queued& item) { return item.call != nullptr; });
}

void SendQueue::clear() {
  items_.clear();
  head_ = 0;
}

/// What a group does counts for those it was split from too.
void Mesh::count_call(GroupState* state) {
  for (; state; state = group(state->info->parent)) ++state->counters.calls;
}

void Mesh::enqueue(Rank world, const Segment& segment, Call* call, std::int64_t order,
                   GroupState* state) {
  Peer& to = peer(world);
  for (; state; state = group(state->info->parent)) {
    ++state->counters.messages;
    state->counters.header_bytes += kFrameBytes;
    state->counters.payload_bytes += segment.frame.length;
  }
  if (to.closed) {  // nobody will read it; whoever waits for that rank gets the error
    if (call) --call->unsent;
    return;
  }
  Queued item{segment, call, order};
  item.segment.frame.run = run_;
  to.queue.insert(item, std::max<std::size_t>(to.fixed, to.sent > 0 ? 1 : 0));
}

/// Short queues go out in the caller's thread: it saves the way over the progress thread.
void Mesh::send_now(Rank world) {
  Peer& to = peer(world);
  if (to.queue.empty() || to.sending || to.armed || to.closed || to.deaf) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < to.queue.size() && bytes <= kInlineBytes; ++i)
    bytes += kFrameBytes + to.queue.at(i).segment.frame.length;
  if (bytes > kInlineBytes + kFrameBytes) return flush_later();
  Gathered pieces;
  gather(to, pieces);
  const ssize_t sent = send_gathered(to.fd, pieces);
  if (sent > 0) advance(world, static_cast<std::size_t>(sent));
  if (!to.queue.empty()) flush_later();
}

void Mesh::flush_later() {
  if (flush_posted_) return;
  flush_posted_ = true;
  reactor_.wake();
}

void Mesh::run() {
  std::array<Reactor::Event, 64> events;
  while (take_inbox()) {
    const std::size_t n = reactor_.wait(events, report_suspect());
    for (std::size_t i = 0; i < n; ++i) {
      if (events[i].key == Reactor::kWake) continue;
      const auto world = static_cast<Rank>(events[i].key);
      if (events[i].writable) {
        {
          std::lock_guard lock(mutex_);
          if (peer(world).armed) arm_write(world, false);
        }
        flush(world);
      }
      if (events[i].readable) read(world);
    }
  }
}

bool Mesh::take_inbox() {
  std::optional<Fault> fault;
  {
    std::lock_guard lock(inbox_mutex_);
    if (ending_) return false;
    fault.swap(inbox_);
  }
  if (fault && !await_last_bytes(*fault)) end_all(*fault);
  bool wanted;
  {
    std::lock_guard lock(mutex_);
    wanted = std::exchange(flush_posted_, false);
  }
  if (wanted) flush_due();
  return true;
}

void Mesh::flush(Rank world) {
  Peer& to = peer(world);
  std::unique_lock lock(mutex_);
  while (!to.queue.empty() && !to.armed && !to.closed && !to.deaf) {
    Gathered pieces;
    gather(to, pieces);
    to.fixed = pieces.pieces;
    to.sending = true;
    lock.unlock();
    const ssize_t sent = send_gathered(to.fd, pieces);
    const int error = errno;
    lock.lock();
    to.sending = false;
    to.fixed = 0;
    if (sent > 0) {
      advance(world, static_cast<std::size_t>(sent));
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      arm_write(world, true);
    } else {
      to.deaf = true;
    }
  }
}

void Mesh::flush_due() {
  due_.clear();
  {
    std::lock_guard lock(mutex_);
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (peers_[r] && !peers_[r]->queue.empty() && !peers_[r]->armed)
        due_.push_back(static_cast<Rank>(r));
  }
  for (const Rank world : due_) flush(world);
}

void Mesh::advance(Rank world, std::size_t bytes) {
  Peer& to = peer(world);
  if (to.closed) return;
  to.sent += bytes;
  while (!to.queue.empty()) {
    Queued& front = to.queue.at(0);
    const std::size_t whole = kFrameBytes + (front.segment.data ? front.segment.frame.length : 0);
    if (to.sent < whole) return;
    to.sent -= whole;
    Call* call = front.call;
    to.queue.pop_front();
    if (call) {
      --call->unsent;
      try_complete(*call);
    }
  }
}

void Mesh::arm_write(Rank world, bool armed) {
  Peer& to = peer(world);
  to.armed = armed;
  if (!to.closed) reactor_.want(to.fd, static_cast<std::uint32_t>(world), true, armed);
}

}  // namespace thinwire::tcp
