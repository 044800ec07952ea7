// SPDX-License-Identifier: Apache-2.0
// The measurement behind `thinwire bench comm`: one size of all_reduce over one communicator.
#pragma once
#include <vector>

#include "thinwire/core/json.h"
#include "thinwire/core/types.h"

namespace thinwire {
class Comm;
}

namespace thinwire::cli {

/// What the bench found for one size; docs/costs.md says what each figure means.
struct CommFigures {
  Bytes bytes = 0;
  int calls = 0;              ///< in one timed block, one after the other
  std::vector<Seconds> time;  ///< of a call: each block's, on the rank where it took longest
  Seconds cpu_s = 0;          ///< of all ranks, over all timed blocks
};

/// All-reduces of f32 in one buffer that grows as needed. Every size is checked against the sum
/// that all ranks know before it is timed; a wrong one is an Error that names the first element.
class CommBench {
 public:
  explicit CommBench(Comm& comm) : comm_(comm) {}
  /// Collective: blocks of calls for about `seconds`, at least one. The figures on every rank.
  CommFigures measure(Bytes bytes, Seconds seconds);

 private:
  Seconds block(int calls);
  void check(std::int64_t count);

  Comm& comm_;
  std::vector<float> data_;
  std::vector<Bytes> checked_;
  std::int64_t step_ = 0, count_ = 0;
};

/// The row that the bench prints: names, values, units, and ratios to the targets where there are
/// any.
Json row_of(const CommFigures& figures, const std::string& comm, int ranks);
/// What is missed in a row, in words; empty: nothing.
std::string missed(const Json& row);

}  // namespace thinwire::cli
