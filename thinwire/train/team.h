// SPDX-License-Identifier: Apache-2.0
// The few small words that the ranks of a training exchange beside gradients: sums of statistics,
// texts. One rank without a communicator needs no special case. No torch.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire {

/// Exchange ids of a training's own messages, outside any plan.
enum class TeamMessage : std::int32_t {
  statistic = -101,
  evaluation = -102,
  counts = -103,
  buffers = -104,
  window = -105
};

class Team {
 public:
  /// Null: alone. Otherwise collective: makes a communicator of its own, so that its order is
  /// independent of the gradients'. `world` outlives the team.
  explicit Team(Comm* world);
  Rank rank() const { return world_ ? world_->rank() : 0; }
  int size() const { return world_ ? world_->size() : 1; }
  Comm* world() const { return world_; }

  /// Starts to sum `values` over all ranks, in place; they stay untouched until the handle is done.
  Handle sum(TeamMessage what, std::int64_t step, std::span<double> values);
  /// Everybody's number, in rank order. Blocking.
  std::vector<std::int64_t> all(TeamMessage what, std::int64_t step, std::int64_t value);
  /// Overwrites `bytes` bytes with rank 0's. Blocking.
  void copy_first(const MessageId& id, void* data, Bytes bytes);
  /// Rank 0's text, on all ranks. Slow; for set-up.
  std::string from_first(const std::string& topic, const std::string& text);
  /// Everybody's text, in rank order. Slow; for set-up.
  std::vector<std::string> texts(const std::string& topic, const std::string& text);
  /// Bytes that this rank has sent, headers included.
  Bytes sent_bytes() const;

 private:
  Comm* world_;
  std::unique_ptr<Comm> own_;
};

}  // namespace thinwire
