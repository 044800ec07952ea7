// SPDX-License-Identifier: Apache-2.0
// How long a collective takes over a communicator, and what it costs the cores.
#pragma once
#include <cstdint>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {
class Comm;

/// Of one size; docs/costs.md says what each figure means.
struct CommFigures {
  Bytes bytes = 0;            ///< all_reduce: of the buffer; all_gather: of each rank's part
  int calls = 0;              ///< in one timed block, one after the other
  std::vector<Seconds> time;  ///< of a call: each block's, on the rank where it took longest
  Seconds cpu_s = 0;          ///< of all ranks, over all timed blocks
  Seconds median() const;     ///< of `time`
};

enum class TimedCall : std::uint8_t { all_reduce, all_gather };

/// Calls of f32 in buffers that grow as needed. The all_reduce of every size is checked against the
/// sum that all ranks know before anything of that size is timed; a wrong one is an Error that
/// names the first element.
class CommTiming {
 public:
  /// `comm` outlives this.
  explicit CommTiming(Comm& comm) : comm_(comm) {}
  /// Collective: blocks of calls for about `seconds`, at least one. The figures on every rank.
  CommFigures measure(Bytes bytes, Seconds seconds, TimedCall kind = TimedCall::all_reduce);

 private:
  void call();
  Seconds block(int calls);
  void check(std::int64_t count);

  Comm& comm_;
  TimedCall kind_ = TimedCall::all_reduce;
  std::vector<float> data_, gathered_;
  std::vector<Bytes> checked_;
  std::int64_t step_ = 0, count_ = 0;
};

}  // namespace thinwire
