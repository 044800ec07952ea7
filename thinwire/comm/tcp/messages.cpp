// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks. A short one goes at once and waits at the receiver if need be; a long
// one is offered first and goes when a receive has accepted it. Matched by communicator, rank and
// id, in order for equal ids.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/comm/tcp/mesh.h"

namespace thinwire::tcp {

Handle Mesh::start_message(Call& call) {
  call.plan = Plan::message;
  call.chunk = options_.chunk;
  call.unsent = 0;
  call.peers.clear();
  call.pending->signature = call.signature;
  call.pending->name.clear();
  membership_->started(call.signature.kind, call.signature.id);
  std::lock_guard lock(mutex_);
  try {
    refuse_if_over(call.signature);
  } catch (...) {
    call.active = false;
    throw;
  }
  GroupState* state = group(call.group->id);
  count_call(state);
  call.order = next_order_++;
  call.pending->restart(after(membership_->timeout_s()));
  call.pending->call = &call;
  Handle handle(call.pending);
  active_.push_back(&call);
  bool lost = false;
  if (call.signature.kind == CallKind::recv) {
    call.missing = call.out.bytes();
    find_early_message(call);
    if (call.active && call.partner >= 0 && !call.bound) {
      const Rank world = call.group->world[static_cast<std::size_t>(call.partner)];
      if (peer(world).closed) close_peer(world, "was closed");
    }
  } else {
    call.missing = 0;
    call.sequence = next_message_++;
    const Rank world = call.group->world[static_cast<std::size_t>(call.partner)];
    const bool is_short = call.in.bytes() <= options_.eager && has_room(world, call.in.bytes());
    Segment segment;
    segment.frame.kind = is_short ? FrameKind::message : FrameKind::offer;
    segment.frame.group = call.group->id;
    segment.frame.sequence = call.sequence;
    segment.frame.call = call.signature;
    call.bound = is_short;
    if (is_short) {
      segment.frame.length = static_cast<std::uint32_t>(call.in.bytes());
      segment.data = static_cast<const std::byte*>(call.in.data);
      sent_eagerly(world, segment.frame);
      call.unsent = 1;
    }
    enqueue(world, segment, is_short ? &call : nullptr, call.order, state);
    lost = peer(world).closed;
    if (lost) suspect(world, "was closed");
    send_now(world);
  }
  if (!lost) try_complete(call);  // else the fault ends it
  return handle;
}

Call* Mesh::waiting_receive(std::uint64_t group, Rank from_world, const MessageId& id) {
  for (Call* call : active_) {
    if (call->plan != Plan::message || call->signature.kind != CallKind::recv || call->bound)
      continue;
    if (call->group->id != group || !(call->signature.id == id)) continue;
    const Rank from = group_rank(*call->group, from_world);
    if (from >= 0 && (call->partner < 0 || call->partner == from)) return call;
  }
  return nullptr;
}

/// Ties a receive to the message it will get; both must be of one size and type.
void Mesh::bind(Call& receive, Rank from_world, const Frame& frame) {
  receive.partner = group_rank(*receive.group, from_world);
  receive.bound = true;
  receive.sequence = frame.sequence;
  if (frame.call.count == receive.signature.count && frame.call.dtype == receive.signature.dtype)
    return;
  const Rank own = membership_->rank();
  membership_->fail({-1, own < from_world
                             ? mismatch(own, receive.signature, from_world, frame.call)
                             : mismatch(from_world, frame.call, own, receive.signature)});
}

bool Mesh::find_early_message(Call& receive) {
  const auto matches = [&](const Early& early) {
    if (early.frame.kind != FrameKind::message && early.frame.kind != FrameKind::offer)
      return false;
    const Rank from = group_rank(*receive.group, early.from);
    return early.frame.group == receive.group->id && early.frame.call.id == receive.signature.id &&
           !early.claimed && from >= 0 && (receive.partner < 0 || receive.partner == from);
  };
  const auto found = std::find_if(early_.begin(), early_.end(),
                                  [&](const auto& early) { return matches(*early); });
  if (found != early_.end()) {
    fill_from(receive, **found);
    return true;
  }
  for (auto& other : peers_) {
    if (!other || !other->early || !matches(*other->early)) continue;
    other->early->claimed = &receive;
    bind(receive, other->early->from, other->early->frame);
    return true;
  }
  return false;
}

/// The message, or the offer of one, has come before the receive. Takes it out of the waiting ones.
void Mesh::fill_from(Call& receive, Early& early) {
  const Frame frame = early.frame;
  const Rank from = early.from;
  if (!early.claimed) bind(receive, from, frame);
  const bool fits =
      frame.call.count == receive.signature.count && frame.call.dtype == receive.signature.dtype;
  if (frame.kind == FrameKind::message && fits) {
    std::copy_n(early.bytes.begin(), frame.length, static_cast<std::byte*>(receive.out.data));
    receive.missing = 0;
  }
  const auto at = std::find_if(early_.begin(), early_.end(),
                               [&](const auto& item) { return item.get() == &early; });
  drop_early(static_cast<std::size_t>(at - early_.begin()));
  if (frame.kind == FrameKind::offer) {
    Segment accept;
    accept.frame.kind = FrameKind::accept;
    accept.frame.group = frame.group;
    accept.frame.sequence = frame.sequence;
    accept.frame.call = frame.call;
    enqueue(from, accept, nullptr, receive.order, group(frame.group));
    send_now(from);
  }
  try_complete(receive);
}

void Mesh::take_offer(Rank from_world, const Frame& frame) {
  early_.push_back(fresh_early(from_world, frame));
  if (Call* receive = waiting_receive(frame.group, from_world, frame.call.id))
    fill_from(*receive, *early_.back());
}

void Mesh::take_accept(Rank from_world, const Frame& frame) {
  for (Call* call : active_) {
    if (call->plan != Plan::message || call->signature.kind != CallKind::send ||
        call->sequence != frame.sequence || call->bound ||
        call->group->world[static_cast<std::size_t>(call->partner)] != from_world)
      continue;
    call->bound = true;
    const auto* data = static_cast<const std::byte*>(call->in.data);
    for (std::int64_t at = 0; at < call->in.bytes(); at += call->chunk) {
      Segment segment;
      segment.frame.kind = FrameKind::piece;
      segment.frame.group = frame.group;
      segment.frame.sequence = call->sequence;
      segment.frame.call = call->signature;
      segment.frame.offset = at;
      segment.frame.length =
          static_cast<std::uint32_t>(std::min(call->chunk, call->in.bytes() - at));
      segment.data = data + at;
      ++call->unsent;
      enqueue(from_world, segment, call, call->order, group(frame.group));
    }
    return;
  }
}

/// Where the payload of a message goes; the lock is held.
void Mesh::place_message(Rank world) {
  Peer& from = peer(world);
  const Frame& frame = from.frame;
  const Bytes whole = frame.call.count * dtype_bytes(frame.call.dtype);
  if (frame.kind == FrameKind::message && frame.offset == 0 && frame.length == whole) {
    if (Call* receive = waiting_receive(frame.group, world, frame.call.id)) {
      bind(*receive, world, frame);
      if (receive->out.bytes() != whole) return;  // they disagree; the fault is on its way
      from.call = receive;
      from.place = static_cast<std::byte*>(receive->out.data);
      return;
    }
    if (whole <= options_.eager && frame.eager) {
      from.early = fresh_early(world, frame);
      from.place = from.early->bytes.data();
      return;
    }
  }
  for (Call* call : active_) {
    if (frame.kind != FrameKind::piece) break;
    if (call->plan != Plan::message || call->signature.kind != CallKind::recv || !call->bound ||
        call->sequence != frame.sequence ||
        call->group->world[static_cast<std::size_t>(call->partner)] != world)
      continue;
    if (frame.offset + frame.length > call->out.bytes() || frame.length > call->missing) break;
    from.call = call;
    from.place = static_cast<std::byte*>(call->out.data) + frame.offset;
    return;
  }
  membership_->fail(
      {world, "rank " + std::to_string(world) +
                  " sent part of a message that nobody expects: " + describe(frame.call)});
}

}  // namespace thinwire::tcp
