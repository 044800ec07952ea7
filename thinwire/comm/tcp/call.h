// SPDX-License-Identifier: Apache-2.0
// A collective or a message under way: what is to be sent to whom, where what arrives belongs, and
// what to do with it. No sockets here. A call is touched by the thread that starts it before it is
// published, and afterwards by the progress thread alone, its counters under the mesh's lock.
#pragma once
#include <memory>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/tcp/frame.h"
#include "thinwire/comm/tcp/options.h"

namespace thinwire::tcp {

/// A communicator: world ranks in group order, and a number all its ranks know it by.
struct GroupInfo {
  std::uint64_t id = 0;
  std::uint64_t parent = 0;  ///< the communicator this one was split from; 0: none
  std::vector<Rank> world;   ///< group rank -> world rank
  Rank rank = 0;             ///< of this process, in the group
  int size() const { return static_cast<int>(world.size()); }
};

enum class Plan : std::uint8_t {
  shard,            ///< all_reduce: contributions to owners, results to all
  gather,           ///< all_reduce of a short message: everything to everybody
  scatter_reduce,   ///< reduce_scatter
  everybody,        ///< all_gather
  pairs,            ///< all_to_all
  from_root,        ///< broadcast: the root to each
  scatter_forward,  ///< broadcast of a long message: parts to owners, who pass them on
  message           ///< send, recv
};

/// One piece on its way to a peer.
struct Segment {
  Frame frame;
  const std::byte* data = nullptr;
};

struct CallPeer {
  bool posted = false;       ///< the peer has started this call too
  bool emitted = false;      ///< the first pieces for it are queued
  std::int64_t missing = 0;  ///< bytes still to come from it
};

class CallPending;

struct Call {
  Signature signature;
  Plan plan = Plan::shard;
  std::shared_ptr<const GroupInfo> group;
  std::int64_t sequence = 0;
  std::int64_t order = 0;  ///< of starting, over all communicators: what goes first on a wire
  Buffer in, out;          ///< in == out where the call works in place
  Bytes chunk = 0;
  bool eager = false;
  std::vector<std::int64_t> in_bytes, out_bytes, in_at, out_at;  ///< all_to_all
  std::vector<CallPeer> peers;
  std::int64_t missing = 0;     ///< bytes still to come, over all peers
  std::int64_t own_until = 0;   ///< scatter_forward: what is there of the own part, as an end
  std::int64_t unsent = 0;      ///< segments queued or to be queued
  std::int64_t parts_left = 0;  ///< pieces still to be combined by this rank
  std::vector<std::byte> scratch;
  std::vector<std::int32_t> arrived;  ///< per chunk of the own part: contributions that are there
  std::vector<const void*> sources;
  std::shared_ptr<CallPending> pending;
  bool active = false;
  bool working = false;  ///< arrived() is at work on it; nobody else completes it meanwhile
  // Messages between two ranks.
  Rank partner = -1;   ///< group rank of the other side; -1: any, not yet known
  bool bound = false;  ///< a receive has found its message, a send has been accepted

  int ranks() const { return group->size(); }
  Rank rank() const { return group->rank; }
  Bytes element() const { return dtype_bytes(signature.dtype); }
  /// Bytes [begin, end) of the part that rank r owns, in whole elements.
  std::pair<std::int64_t, std::int64_t> part(Rank r) const;
};

/// Chooses the plan, counts what will come and go, copies what must be copied. The buffers and the
/// signature are set.
void prepare(Call& call, const Options& options);
/// The first pieces for a peer (a group rank), appended to `out`.
void emit(Call& call, Rank peer, std::vector<Segment>& out);
/// Where a piece from `peer` belongs; nullptr: it cannot be part of this call.
std::byte* destination(Call& call, Rank peer, const Frame& frame);
/// A piece has arrived in its place and is taken off `missing`: combines what is complete and
/// appends what can now be sent, with the peer (a group rank). Needs no lock: see `working`.
void arrived(Call& call, const Frame& frame, std::vector<std::pair<Rank, Segment>>& out);
/// What both sides must agree on: the element count this rank exchanges with `peer`.
Signature signature_for(const Call& call, Rank peer);
/// Whether the peer's signature fits this call.
bool fits(const Call& call, Rank peer, const Signature& theirs);

}  // namespace thinwire::tcp
