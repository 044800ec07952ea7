// SPDX-License-Identifier: Apache-2.0
// What arrives on the connections: reads straight into place, frame by frame.
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

constexpr int kReadsInARow = 16;  // then other connections get a turn

}  // namespace

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
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
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
