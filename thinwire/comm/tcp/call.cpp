// SPDX-License-Identifier: Apache-2.0
// The collectives, as pieces. Bytes and rounds of each stand in docs/costs.md.
// shard: rank r owns part r. Everybody sends its piece of part r to r; r adds the pieces in rank
//   order, ((r0 + r1) + r2) + ..., chunk by chunk as they come, divides a mean there, and sends
//   each finished chunk to all others, straight into place.
// gather: everybody sends everything to everybody, and all add in rank order: the same bits.
#include "thinwire/comm/tcp/call.h"

#include <algorithm>
#include <cstring>

#include "thinwire/comm/reduce.h"
#include "thinwire/core/error.h"

namespace thinwire::tcp {
namespace {

std::byte* bytes_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

bool reduces(Plan plan) {
  return plan == Plan::shard || plan == Plan::gather || plan == Plan::scatter_reduce;
}

/// Whose contributions wait in the scratch memory, one slot a peer.
std::int64_t slot(const Call& call, Rank peer) { return peer < call.rank() ? peer : peer - 1; }

/// With two ranks a contribution is combined as soon as it is there, so one chunk of scratch will
/// do.
bool combines_at_once(const Call& call) { return call.ranks() == 2; }

void push(Call& call, std::vector<Segment>& out, Rank peer, int phase, std::int64_t begin,
          std::int64_t end, const std::byte* data) {
  for (std::int64_t at = begin; at < end; at += call.chunk) {
    const std::int64_t length = std::min<std::int64_t>(call.chunk, end - at);
    Segment segment;
    segment.frame.kind = FrameKind::data;
    segment.frame.phase = static_cast<std::uint8_t>(phase);
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, peer);
    segment.frame.offset = at;
    segment.frame.length = static_cast<std::uint32_t>(length);
    segment.data = data + (at - begin);
    out.push_back(segment);
    ++call.unsent;
  }
}

/// What this rank receives from `peer`, in bytes, over both phases.
std::int64_t expected(const Call& call, Rank peer) {
  const auto size_of = [&](Rank r) {
    const auto [begin, end] = call.part(r);
    return end - begin;
  };
  const Rank me = call.rank();
  const Rank root = call.signature.root;
  switch (call.plan) {
    case Plan::shard:
      return size_of(me) + size_of(peer);
    case Plan::gather:
      return call.in.bytes();
    case Plan::scatter_reduce:
      return call.out.bytes();
    case Plan::everybody:
      return call.in.bytes();
    case Plan::pairs:
      return call.out_bytes[static_cast<std::size_t>(peer)];
    case Plan::from_root:
      return peer == root ? call.out.bytes() : 0;
    case Plan::scatter_forward:
      if (me == root) return 0;
      return peer == root ? size_of(me) + size_of(root) : size_of(peer);
    case Plan::message:
      return 0;
  }
  return 0;
}

bool has_first_pieces(const Call& call, Rank peer) {
  switch (call.plan) {
    case Plan::shard: {
      const auto [begin, end] = call.part(peer);
      return end > begin;
    }
    case Plan::pairs:
      return call.in_bytes[static_cast<std::size_t>(peer)] > 0;
    case Plan::from_root:
      return call.rank() == call.signature.root;
    // An owner passes on to each peer what is there when the peer has started, and the rest as it
    // comes.
    case Plan::scatter_forward:
      return call.rank() == call.signature.root || peer != call.signature.root;
    default:
      return call.in.count > 0;
  }
}

void prepare_own(Call& call) {
  const Rank me = call.rank();
  const std::int64_t others = call.ranks() - 1;
  const auto [begin, end] = call.part(me);
  call.parts_left = 0;
  call.arrived.clear();
  if (others == 0 && reduces(call.plan)) {
    move_bytes(call.out.data, call.in.data, call.in.bytes());
    return;
  }
  if (call.plan == Plan::gather) {
    // The sum is written in place, so what is still being sent must stand elsewhere.
    call.scratch.resize(static_cast<std::size_t>(call.in.bytes() * call.ranks()));
    move_bytes(call.scratch.data() + me * call.in.bytes(), call.in.data, call.in.bytes());
    call.parts_left = call.in.count > 0 ? 1 : 0;
  } else if (reduces(call.plan)) {
    const std::int64_t chunks = (end - begin + call.chunk - 1) / call.chunk;
    call.parts_left = chunks;
    call.arrived.assign(static_cast<std::size_t>(chunks), 0);
    const std::int64_t scratch =
        combines_at_once(call) ? std::min(call.chunk, end - begin) : others * (end - begin);
    if (static_cast<std::int64_t>(call.scratch.size()) < scratch)
      call.scratch.resize(static_cast<std::size_t>(scratch));
  } else if (call.plan == Plan::everybody) {
    move_bytes(bytes_of(call.out) + me * call.in.bytes(), call.in.data, call.in.bytes());
  } else if (call.plan == Plan::pairs) {
    const auto r = static_cast<std::size_t>(me);
    move_bytes(bytes_of(call.out) + call.out_at[r], bytes_of(call.in) + call.in_at[r],
               call.out_bytes[r]);
  }
}

void choose_plan(Call& call, const Options& options) {
  const bool is_short = call.in.bytes() * (call.ranks() - 1) <= options.gather;
  switch (call.signature.kind) {
    case CallKind::all_reduce: {
      const bool gather = options.all_reduce == AllReduce::gather ||
                          (options.all_reduce == AllReduce::chosen && is_short);
      call.plan = gather ? Plan::gather : Plan::shard;
      break;
    }
    case CallKind::reduce_scatter:
      call.plan = Plan::scatter_reduce;
      break;
    case CallKind::all_gather:
    case CallKind::barrier:
      call.plan = Plan::everybody;
      break;
    case CallKind::all_to_all:
      call.plan = Plan::pairs;
      break;
    case CallKind::broadcast:
      call.plan = call.ranks() > 2 && call.out.bytes() > options.eager ? Plan::scatter_forward
                                                                       : Plan::from_root;
      break;
    case CallKind::send:
    case CallKind::recv:
      call.plan = Plan::message;
      break;
  }
}

void combine_range(Call& call, std::int64_t offset, std::int64_t length) {
  const auto [begin, end] = call.part(call.rank());
  call.sources.clear();
  for (Rank r = 0; r < call.ranks(); ++r) {
    if (r == call.rank()) {
      call.sources.push_back(bytes_of(call.in) + offset);
    } else if (combines_at_once(call)) {
      call.sources.push_back(call.scratch.data());
    } else {
      call.sources.push_back(call.scratch.data() + slot(call, r) * (end - begin) +
                             (offset - begin));
    }
  }
  std::byte* out =
      bytes_of(call.out) + (call.plan == Plan::scatter_reduce ? offset - begin : offset);
  combine(out, call.sources, length / call.element(), call.signature.dtype, call.signature.op);
}

void arrived_contribution(Call& call, const Frame& frame,
                          std::vector<std::pair<Rank, Segment>>& out) {
  const auto [begin, end] = call.part(call.rank());
  const auto chunk = static_cast<std::size_t>((frame.offset - begin) / call.chunk);
  if (++call.arrived[chunk] < call.ranks() - 1) return;
  combine_range(call, frame.offset, frame.length);
  --call.parts_left;
  if (call.plan != Plan::shard) return;
  for (Rank peer = 0; peer < call.ranks(); ++peer) {
    if (peer == call.rank()) continue;
    Segment segment;
    segment.frame.kind = FrameKind::data;
    segment.frame.phase = 1;
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, peer);
    segment.frame.offset = frame.offset;
    segment.frame.length = frame.length;
    segment.data = bytes_of(call.out) + frame.offset;
    out.emplace_back(peer, segment);
  }
}

void arrived_whole(Call& call) {
  if (call.missing > 0) return;
  call.sources.clear();
  for (Rank r = 0; r < call.ranks(); ++r)
    call.sources.push_back(call.scratch.data() + r * call.in.bytes());
  combine(call.out.data, call.sources, call.in.count, call.signature.dtype, call.signature.op);
  call.parts_left = 0;
}

void forward(Call& call, const Frame& frame, std::vector<std::pair<Rank, Segment>>& out) {
  const auto [begin, end] = call.part(call.rank());
  if (frame.phase != 0 || frame.offset < begin || frame.offset >= end) return;
  call.own_until = frame.offset + frame.length;
  for (Rank peer = 0; peer < call.ranks(); ++peer) {
    const bool started = call.peers[static_cast<std::size_t>(peer)].emitted;
    if (peer == call.rank() || peer == call.signature.root || !started) continue;
    Segment segment;
    segment.frame.kind = FrameKind::data;
    segment.frame.phase = 1;
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, peer);
    segment.frame.offset = frame.offset;
    segment.frame.length = frame.length;
    segment.data = bytes_of(call.out) + frame.offset;
    out.emplace_back(peer, segment);
  }
}

bool inside(const Frame& frame, std::int64_t begin, std::int64_t end) {
  return frame.offset >= begin && frame.offset + frame.length <= end;
}

std::byte* contribution_place(Call& call, Rank peer, const Frame& frame) {
  const auto [begin, end] = call.part(call.rank());
  const bool whole_chunk = (frame.offset - begin) % call.chunk == 0 &&
                           frame.length == std::min<std::int64_t>(call.chunk, end - frame.offset);
  if (frame.phase != 0 || !inside(frame, begin, end) || !whole_chunk) return nullptr;
  if (combines_at_once(call)) return call.scratch.data();
  return call.scratch.data() + slot(call, peer) * (end - begin) + (frame.offset - begin);
}

}  // namespace

std::pair<std::int64_t, std::int64_t> Call::part(Rank r) const {
  if (plan == Plan::scatter_reduce) return {r * out.bytes(), (r + 1) * out.bytes()};
  const std::int64_t count = out.count, n = ranks();
  return {count * r / n * element(), count * (r + 1) / n * element()};
}

void prepare(Call& call, const Options& options) {
  choose_plan(call, options);
  call.own_until = call.part(call.rank()).first;
  call.chunk = options.chunk / 16 * 16;  // whole elements of every type
  call.eager = call.in.bytes() <= options.eager && call.out.bytes() <= options.eager;
  call.unsent = 0;
  call.missing = 0;
  prepare_own(call);
  call.peers.assign(static_cast<std::size_t>(call.ranks()), {});
  for (Rank peer = 0; peer < call.ranks(); ++peer) {
    CallPeer& state = call.peers[static_cast<std::size_t>(peer)];
    if (peer == call.rank()) {
      state.emitted = true;
      continue;
    }
    state.missing = expected(call, peer);
    call.missing += state.missing;
    state.emitted = !has_first_pieces(call, peer);
  }
}

void emit(Call& call, Rank peer, std::vector<Segment>& out) {
  CallPeer& state = call.peers[static_cast<std::size_t>(peer)];
  if (state.emitted) return;
  state.emitted = true;
  const auto [begin, end] = call.part(peer);
  switch (call.plan) {
    case Plan::shard:
    case Plan::scatter_reduce:
      return push(call, out, peer, 0, begin, end, bytes_of(call.in) + begin);
    case Plan::gather:
      return push(call, out, peer, 0, 0, call.in.bytes(),
                  call.scratch.data() + call.rank() * call.in.bytes());
    case Plan::everybody:
      return push(call, out, peer, 0, 0, call.in.bytes(), bytes_of(call.in));
    case Plan::pairs: {
      const auto r = static_cast<std::size_t>(peer);
      return push(call, out, peer, 0, 0, call.in_bytes[r], bytes_of(call.in) + call.in_at[r]);
    }
    case Plan::from_root:
      return push(call, out, peer, 0, 0, call.in.bytes(), bytes_of(call.in));
    case Plan::scatter_forward: {
      const auto [own_begin, own_end] = call.part(call.rank());
      if (call.rank() != call.signature.root)
        return push(call, out, peer, 1, own_begin, call.own_until, bytes_of(call.out) + own_begin);
      push(call, out, peer, 0, begin, end, bytes_of(call.in) + begin);
      return push(call, out, peer, 1, own_begin, own_end, bytes_of(call.in) + own_begin);
    }
    case Plan::message:
      return;
  }
}

std::byte* destination(Call& call, Rank peer, const Frame& frame) {
  const auto [begin, end] = call.part(peer);
  switch (call.plan) {
    case Plan::shard:
      if (frame.phase == 1)
        return inside(frame, begin, end) ? bytes_of(call.out) + frame.offset : nullptr;
      return contribution_place(call, peer, frame);
    case Plan::scatter_reduce:
      return contribution_place(call, peer, frame);
    case Plan::gather:
      return inside(frame, 0, call.in.bytes())
                 ? call.scratch.data() + peer * call.in.bytes() + frame.offset
                 : nullptr;
    case Plan::everybody:
      return inside(frame, 0, call.in.bytes())
                 ? bytes_of(call.out) + peer * call.in.bytes() + frame.offset
                 : nullptr;
    case Plan::pairs: {
      const auto r = static_cast<std::size_t>(peer);
      return inside(frame, 0, call.out_bytes[r])
                 ? bytes_of(call.out) + call.out_at[r] + frame.offset
                 : nullptr;
    }
    case Plan::from_root:
    case Plan::scatter_forward:
      return inside(frame, 0, call.out.bytes()) ? bytes_of(call.out) + frame.offset : nullptr;
    case Plan::message:
      return nullptr;
  }
  return nullptr;
}

void arrived(Call& call, const Frame& frame, std::vector<std::pair<Rank, Segment>>& out) {
  if (call.plan == Plan::gather) {
    arrived_whole(call);
  } else if (reduces(call.plan)) {
    if (frame.phase == 0) arrived_contribution(call, frame, out);
  } else if (call.plan == Plan::scatter_forward) {
    forward(call, frame, out);
  }
}

Signature signature_for(const Call& call, Rank peer) {
  Signature signature = call.signature;
  if (call.plan == Plan::pairs)
    signature.count = call.in_bytes[static_cast<std::size_t>(peer)] / call.element();
  return signature;
}

bool fits(const Call& call, Rank peer, const Signature& theirs) {
  Signature ours = call.signature;
  if (call.plan == Plan::pairs)
    ours.count = call.out_bytes[static_cast<std::size_t>(peer)] / call.element();
  return ours == theirs;
}

}  // namespace thinwire::tcp
