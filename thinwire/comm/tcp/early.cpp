// SPDX-License-Identifier: Apache-2.0
// What comes before this rank has a place for it, and how much of it there may be: a rank sends at
// most `window` bytes to a peer unasked; the peer acknowledges, with every frame, what it has taken
// in. A rank that runs ahead thus falls back to asking first, and no memory grows without bound.
#include "thinwire/comm/tcp/mesh.h"

namespace thinwire::tcp {

bool Mesh::has_room(Rank world, Bytes bytes) {
  const Peer& to = peer(world);
  return static_cast<Bytes>(to.eager_sent - to.eager_acked) + bytes <= options_.window;
}

void Mesh::sent_eagerly(Rank world, Frame& frame) {
  frame.eager = true;
  peer(world).eager_sent += frame.length;
}

void Mesh::take_in(Rank world, const Frame& frame) {
  if (!frame.eager) return;
  Peer& from = peer(world);
  from.taken += frame.length;
  if (static_cast<Bytes>(from.taken - from.told) < options_.window / 4 || from.closed) return;
  Segment credit;
  credit.frame.kind = FrameKind::credit;
  enqueue(world, credit, nullptr, 0, nullptr);
  send_now(world);
}

std::unique_ptr<Early> Mesh::fresh_early(Rank world, const Frame& frame) {
  std::unique_ptr<Early> early;
  if (spare_early_.empty()) {
    early = std::make_unique<Early>();
  } else {
    early = std::move(spare_early_.back());
    spare_early_.pop_back();
  }
  early->from = world;
  early->frame = frame;
  early->complete = frame.kind == FrameKind::posted || frame.kind == FrameKind::offer;
  early->claimed = nullptr;
  if (early->bytes.size() < frame.length) early->bytes.resize(frame.length);
  return early;
}

/// What stood there is in its place, or nobody will want it.
void Mesh::drop_early(std::size_t at) {
  take_in(early_[at]->from, early_[at]->frame);
  spare_early_.push_back(std::move(early_[at]));
  early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace thinwire::tcp
