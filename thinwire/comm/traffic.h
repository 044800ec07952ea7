// SPDX-License-Identifier: Apache-2.0
// Internal to comm: what one call puts on a wire, headers apart, where a transport has none of its
// own to count
// (`local`) or does not tell (`c10d`, `mpi`). All_reduce and reduce_scatter count as their
// bandwidth-optimal forms.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "thinwire/comm/comm.h"

namespace thinwire {

struct Traffic {
  Bytes sent = 0, received = 0;
  std::int64_t messages = 0;  ///< sent
  Bytes most() const { return std::max(sent, received); }
};

/// `bytes`: all_reduce, broadcast, send, recv: the buffer's; reduce_scatter: the input's;
/// all_gather: the input's. all_to_all has counts of its own: see there.
inline Traffic traffic(CallKind kind, Bytes bytes, int ranks, bool root = false) {
  const std::int64_t others = ranks - 1;
  if (others == 0 || bytes == 0) return {};
  switch (kind) {
    case CallKind::all_reduce:
      return {2 * bytes * others / ranks, 2 * bytes * others / ranks, 2 * others};
    case CallKind::reduce_scatter:
      return {bytes * others / ranks, bytes * others / ranks, others};
    case CallKind::all_gather:
      return {bytes * others, bytes * others, others};
    case CallKind::broadcast:
      return root ? Traffic{bytes * others, 0, others} : Traffic{0, bytes, 0};
    case CallKind::send:
      return {bytes, 0, 1};
    case CallKind::recv:
      return {0, bytes, 0};
    case CallKind::all_to_all:
    case CallKind::barrier:
      return {};
  }
  return {};
}

/// Counts are per rank, in elements; the own part does not travel.
inline Traffic all_to_all_traffic(std::span<const std::int64_t> out_counts,
                                  std::span<const std::int64_t> in_counts, Rank own,
                                  Bytes element_bytes) {
  Traffic out;
  for (std::size_t r = 0; r < in_counts.size(); ++r) {
    if (static_cast<Rank>(r) == own) continue;
    out.sent += in_counts[r] * element_bytes;
    out.received += out_counts[r] * element_bytes;
    out.messages += in_counts[r] > 0;
  }
  return out;
}

/// What one communicator has called and sent, together with those split from it. Any thread.
class TrafficCount {
 public:
  explicit TrafficCount(std::shared_ptr<TrafficCount> parent = nullptr)
      : parent_(std::move(parent)) {}
  void add(const Traffic& traffic) {
    for (TrafficCount* count = this; count; count = count->parent_.get()) {
      count->calls_.fetch_add(1, std::memory_order_relaxed);
      count->messages_.fetch_add(traffic.messages, std::memory_order_relaxed);
      count->sent_.fetch_add(traffic.sent, std::memory_order_relaxed);
    }
  }
  CommCounters counters() const { return {calls_.load(), messages_.load(), sent_.load(), 0}; }

 private:
  std::shared_ptr<TrafficCount> parent_;
  std::atomic<std::int64_t> calls_{0}, messages_{0}, sent_{0};
};

}  // namespace thinwire
