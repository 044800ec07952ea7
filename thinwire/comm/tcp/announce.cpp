// SPDX-License-Identifier: Apache-2.0
// Who has started what: telling peers of a collective, comparing what they say with it, and keeping
// what comes before this rank has started it.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/core/error.h"

namespace thinwire::tcp {

Handle Mesh::publish(Call& call) {
  try {
    refuse_if_over(call.signature);
  } catch (...) {
    call.active = false;
    throw;
  }
  GroupState& state = *group(call.group->id);
  call.sequence = state.next++;
  call.order = next_order_++;
  state.last[static_cast<std::size_t>(call.sequence) % state.last.size()] = call.signature;
  count_call(&state);
  call.pending->restart(after(membership_->timeout_s()));
  call.pending->call = &call;
  Handle handle(call.pending);
  active_.push_back(&call);
  introduce(call);
  replay_early(call);
  for (Rank r = 0; r < call.ranks(); ++r) {
    if (r == call.rank()) continue;
    const Rank world = call.group->world[static_cast<std::size_t>(r)];
    const CallPeer& state = call.peers[static_cast<std::size_t>(r)];
    if (peer(world).closed && (state.missing > 0 || !state.emitted)) suspect(world, "was closed");
    send_now(world);
  }
  try_complete(call);
  return handle;
}

void Mesh::disagree_on_group(Rank world, const Frame& frame) {
  membership_->fail({world, fmt::format("rank {} sent {} to a group that it does not belong to",
                                        world, thinwire::describe(frame.call))});
}

/// Short pieces go to each peer at once, as long as the peer keeps up; a peer that gets none hears
/// of the call all the same.
void Mesh::introduce(Call& call) {
  for (Rank r = 0; r < call.ranks(); ++r) {
    if (r == call.rank()) continue;
    const Rank world = call.group->world[static_cast<std::size_t>(r)];
    if (call.eager && !call.peers[static_cast<std::size_t>(r)].emitted &&
        has_room(world, call.in.bytes())) {
      emit_to(call, r, true);
      continue;
    }
    Segment segment;
    segment.frame.kind = FrameKind::posted;
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, r);
    segment.frame.group = call.group->id;
    enqueue(world, segment, nullptr, call.order, group(call.group->id));
  }
}

void Mesh::emit_to(Call& call, Rank r, bool eager) {
  if (call.peers[static_cast<std::size_t>(r)].emitted) return;
  pieces_.clear();
  emit(call, r, pieces_);
  GroupState* state = group(call.group->id);
  const Rank world = call.group->world[static_cast<std::size_t>(r)];
  for (Segment& segment : pieces_) {
    segment.frame.group = call.group->id;
    if (eager) sent_eagerly(world, segment.frame);
    enqueue(world, segment, &call, call.order, state);
  }
}

Call* Mesh::find(std::uint64_t group, std::int64_t sequence) {
  for (Call* call : active_)
    if (call->plan != Plan::message && call->sequence == sequence && call->group->id == group)
      return call;
  return nullptr;
}

void Mesh::take_posted(Call& call, Rank r, const Signature& theirs) {
  CallPeer& state = call.peers[static_cast<std::size_t>(r)];
  if (state.posted) return;
  if (!fits(call, r, theirs)) return disagree(call, r, theirs);
  state.posted = true;
  emit_to(call, r);
}

void Mesh::disagree(const Call& call, Rank r, const Signature& theirs) {
  const auto world = [&](Rank g) { return call.group->world[static_cast<std::size_t>(g)]; };
  Signature ours = call.signature;
  if (call.plan == Plan::pairs) {
    ours.count = theirs.count;
    if (ours == theirs) {
      const auto expects = call.out_bytes[static_cast<std::size_t>(r)] / call.element();
      membership_->fail({-1, uneven(ours, world(r), theirs.count, world(call.rank()), expects)});
      return;
    }
  }
  const bool first = world(call.rank()) < world(r);
  membership_->fail({-1, first ? mismatch(world(call.rank()), ours, world(r), theirs)
                               : mismatch(world(r), theirs, world(call.rank()), ours)});
}

/// What came before this rank started the call. The progress thread does not know the call yet, or
/// is the one that does this, so no other thread is at work on its memory; the pieces are short.
void Mesh::replay_early(Call& call) {
  for (std::size_t i = 0; i < early_.size();) {
    Early& early = *early_[i];
    const bool collective =
        early.frame.kind == FrameKind::posted || early.frame.kind == FrameKind::data;
    if (!collective || early.frame.group != call.group->id ||
        early.frame.sequence != call.sequence) {
      ++i;
      continue;
    }
    const Rank r = group_rank(*call.group, early.from);
    if (r >= 0) take_posted(call, r, early.frame.call);
    if (r >= 0 && early.frame.kind == FrameKind::data &&
        call.peers[static_cast<std::size_t>(r)].posted)
      replay(call, r, early);
    drop_early(i);
  }
}

void Mesh::replay(Call& call, Rank r, const Early& early) {
  CallPeer& state = call.peers[static_cast<std::size_t>(r)];
  std::byte* place =
      early.frame.length <= state.missing ? destination(call, r, early.frame) : nullptr;
  if (!place) return disagree(call, r, early.frame.call);
  std::copy_n(early.bytes.begin(), early.frame.length, place);
  state.missing -= early.frame.length;
  call.missing -= early.frame.length;
  replayed_.clear();
  arrived(call, early.frame, replayed_);
  for (auto& [to, segment] : replayed_) {
    ++call.unsent;
    segment.frame.group = call.group->id;
    enqueue(call.group->world[static_cast<std::size_t>(to)], segment, &call, call.order,
            group(call.group->id));
  }
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

void Mesh::try_complete(Call& call) {
  if (!call.active || call.working || call.unsent > 0) return;
  if (call.plan == Plan::message) {
    if (!call.bound || call.missing > 0) return;
  } else {
    if (call.missing > 0 || call.parts_left > 0) return;
    for (const CallPeer& state : call.peers)
      if (!state.emitted) return;
  }
  release(call);
  call.pending->complete();  // no copy of it: it can be reused as soon as its handle is gone
}

void Mesh::release(Call& call) {
  std::erase(active_, &call);
  call.active = false;
  call.pending->call = nullptr;
}

}  // namespace thinwire::tcp
