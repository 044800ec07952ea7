// SPDX-License-Identifier: Apache-2.0
// Bytes on the connections: queues, gathered writes, and reads straight into place.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/core/error.h"

namespace thinwire::tcp {
namespace {

constexpr std::size_t kMostPieces = 16;
constexpr std::size_t kMostBytesAtOnce = 1 << 20;
constexpr std::size_t kInlineBytes = 64 << 10;
constexpr int kReadsInARow = 16;  // then other connections get a turn

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

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

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
    } else if (would_block(error)) {
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

void Mesh::read(Rank world) {
  Peer& from = peer(world);
  const int fd = from.fd;
  for (int i = 0; i < kReadsInARow; ++i) {
    // A payload is read straight into its place, and what follows it along with it: the next
    // header, and a little more, so that a short frame takes one call.
    std::array<iovec, 3> vectors;
    std::size_t count = 0;
    if (from.in_payload) vectors[count++] = {from.place + from.got, from.frame.length - from.got};
    const std::size_t header_got = from.in_payload ? 0 : from.header_got;
    vectors[count++] = {from.header.data() + header_got, kFrameBytes - header_got};
    vectors[count++] = {from.stage.data(), from.stage.size()};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) break;
    if (got <= 0) {
      const std::string why =
          got == 0 ? "was closed" : fmt::format("broke: {}", std::strerror(errno));
      std::lock_guard lock(mutex_);
      return close_peer(world, why);
    }
    if (!consume(world, static_cast<std::size_t>(got))) return reactor_.remove(from.fd);
    // A read that leaves room has most likely emptied the socket; if not, the reactor says so.
    std::size_t room = 0;
    for (std::size_t v = 0; v < count; ++v) room += vectors[v].iov_len;
    if (static_cast<std::size_t>(got) < room) break;
  }
}

/// Shares out what one read brought: to the payload under way, the next header, and the staged
/// rest.
bool Mesh::consume(Rank world, std::size_t bytes) {
  Peer& from = peer(world);
  if (from.in_payload) {
    const std::size_t taken = std::min<std::size_t>(bytes, from.frame.length - from.got);
    from.got += static_cast<std::uint32_t>(taken);
    bytes -= taken;
    if (from.got < from.frame.length) return true;
    if (!finish_frame(world)) return false;
  }
  const std::size_t header_taken = std::min(bytes, kFrameBytes - from.header_got);
  from.header_got += header_taken;
  bytes -= header_taken;
  const std::byte* staged = from.stage.data();
  for (;;) {
    if (!from.in_payload) {
      if (from.header_got < kFrameBytes) {
        const std::size_t taken = std::min(bytes, kFrameBytes - from.header_got);
        std::memcpy(from.header.data() + from.header_got, staged, taken);
        from.header_got += taken;
        staged += taken;
        bytes -= taken;
        if (from.header_got < kFrameBytes) return true;
      }
      if (!take_header(world)) return false;
    }
    const std::size_t taken = std::min<std::size_t>(bytes, from.frame.length - from.got);
    if (taken > 0) std::memcpy(from.place + from.got, staged, taken);
    from.got += static_cast<std::uint32_t>(taken);
    staged += taken;
    bytes -= taken;
    if (from.got < from.frame.length) return true;
    if (!finish_frame(world)) return false;
  }
}

bool Mesh::take_header(Rank world) {
  Peer& from = peer(world);
  const std::lock_guard lock(mutex_);
  if (from.closed) return false;
  try {
    from.frame = decode(from.header);
    if (from.frame.run != run_) throw DataError("it belongs to another run");
    if (from.frame.taken - from.eager_acked > from.eager_sent - from.eager_acked)
      throw DataError("it acknowledges what was not sent");
    from.eager_acked = from.frame.taken;
  } catch (const DataError& error) {
    from.closed = true;
    membership_->fail(
        {world, fmt::format("rank {} sent a frame that is refused: {}", world, error.what())});
    return false;
  }
  from.in_payload = true;
  from.header_got = 0;
  from.got = 0;
  from.call = nullptr;
  from.early.reset();
  from.place = nullptr;
  if (from.frame.kind == FrameKind::message || from.frame.kind == FrameKind::piece)
    place_message(world);
  else if (from.frame.kind == FrameKind::data)
    place_data(world);
  return from.place != nullptr || from.frame.length == 0;
}

/// Where the payload of a collective's piece goes: into the call, or aside until this rank starts
/// it.
void Mesh::place_data(Rank world) {
  Peer& from = peer(world);
  Call* call = find(from.frame.group, from.frame.sequence);
  if (!call) {
    GroupState* state = group(from.frame.group);
    const bool late = state && from.frame.sequence < state->next;
    if (late && differs_from_past(*state, world, from.frame)) return;
    if (late || !from.frame.eager ||
        from.frame.length > static_cast<std::uint32_t>(options_.eager)) {
      membership_->fail(
          {world, fmt::format("rank {} sent {} bytes that no call of rank {} expects: {}", world,
                              from.frame.length, membership_->rank(), describe(from.frame.call))});
      return;
    }
    from.early = fresh_early(world, from.frame);
    from.place = from.early->bytes.data();
    return;
  }
  const Rank r = group_rank(*call->group, world);
  if (r < 0) return disagree_on_group(world, from.frame);
  take_posted(*call, r, from.frame.call);
  const CallPeer& state = call->peers[static_cast<std::size_t>(r)];
  if (!state.posted) return;  // they disagree; the fault is on its way
  from.place = from.frame.length <= state.missing ? destination(*call, r, from.frame) : nullptr;
  if (!from.place) return disagree(*call, r, from.frame.call);
  from.call = call;
}

/// A collective that the peer has started is known here too, is over here, or is still to come.
void Mesh::take_announcement(Rank world, const Frame& frame) {
  Call* call = find(frame.group, frame.sequence);
  GroupState* state = group(frame.group);
  if (call) {
    const Rank r = group_rank(*call->group, world);
    if (r < 0) return disagree_on_group(world, frame);
    take_posted(*call, r, frame.call);
    return try_complete(*call);
  }
  if (!state || frame.sequence >= state->next) {
    early_.push_back(fresh_early(world, frame));
    return;
  }
  differs_from_past(*state, world, frame);
}

/// A call that is over here, such as a broadcast whose root is done once its bytes are sent: the
/// peer must have started the same. True, and the group ends, if not.
bool Mesh::differs_from_past(const GroupState& state, Rank world, const Frame& frame) {
  const auto size = static_cast<std::int64_t>(state.last.size());
  const Signature& ours = state.last[static_cast<std::size_t>(frame.sequence % size)];
  const bool remembered = state.next - frame.sequence <= size;
  if (!remembered || ours.kind == CallKind::all_to_all || ours == frame.call) return false;
  const Rank own = membership_->rank();
  membership_->fail({-1, own < world ? mismatch(own, ours, world, frame.call)
                                     : mismatch(world, frame.call, own, ours)});
  return true;
}

void Mesh::finish_early(std::unique_ptr<Early> early) {
  const Frame frame = early->frame;
  Call* claimed = early->claimed;
  early->complete = true;
  early_.push_back(std::move(early));
  if (claimed) fill_from(*claimed, *early_.back());
  // A call may have been started while its early piece was still coming in.
  Call* started = frame.kind == FrameKind::data ? find(frame.group, frame.sequence) : nullptr;
  if (!started) return;
  replay_early(*started);
  try_complete(*started);
}

/// False: the group is over, nothing more is to be read.
bool Mesh::finish_frame(Rank world) {
  Peer& from = peer(world);
  from.in_payload = false;
  const Frame frame = from.frame;
  if (from.call && from.call->plan != Plan::message) {
    finish_data(world, *from.call);
  } else {
    std::lock_guard lock(mutex_);
    if (from.call) {
      take_in(world, frame);
      from.call->missing -= frame.length;
      try_complete(*from.call);
    } else if (from.early) {
      finish_early(std::move(from.early));
    } else if (frame.kind == FrameKind::offer) {
      take_offer(world, frame);
    } else if (frame.kind == FrameKind::accept) {
      take_accept(world, frame);
    } else if (frame.kind == FrameKind::posted) {
      take_announcement(world, frame);
    }
  }
  from.call = nullptr;  // what came early has been handed over under the lock, as others look there
  from.place = nullptr;
  from.got = 0;
  flush_due();
  std::lock_guard lock(mutex_);
  return !from.closed;
}

void Mesh::finish_data(Rank world, Call& call) {
  const Frame& frame = peer(world).frame;
  {
    std::lock_guard lock(mutex_);
    take_in(world, frame);
    call.peers[static_cast<std::size_t>(group_rank(*call.group, world))].missing -= frame.length;
    call.missing -= frame.length;
    call.working = true;
  }
  results_.clear();
  arrived(call, frame, results_);
  std::lock_guard lock(mutex_);
  call.working = false;
  if (!call.active) return;
  GroupState* state = group(call.group->id);
  for (auto& [to, segment] : results_) {
    ++call.unsent;
    segment.frame.group = call.group->id;
    enqueue(call.group->world[static_cast<std::size_t>(to)], segment, &call, call.order, state);
  }
  try_complete(call);
}

}  // namespace thinwire::tcp
