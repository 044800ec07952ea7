// SPDX-License-Identifier: Apache-2.0
// Internal to comm: the calls of comm.h, made of what a foreign library can do.
#pragma once
#include "thinwire/comm/foreign.h"

namespace thinwire {

/// Starts what `request` asks for (reduce_scatter and mean included), staged through memory of its
/// own. When it is ready, finish() puts the result into the caller's memory. Progress thread only.
class StagedCall {
 public:
  StagedCall(ForeignOps& ops, ForeignRequest request);
  bool ready();   ///< throws the library's errors
  void finish();  ///< copies out

 private:
  void stage();
  void start_sharded();
  bool next_stage();
  ForeignOps& ops_;
  ForeignRequest request_;  // the caller's memory
  ForeignRequest staged_;   // ours
  std::vector<std::byte> in_, out_, shards_;
  std::unique_ptr<ForeignCall> call_;
  enum class Stage { plain, scatter, gather } stage_ = Stage::plain;
};

}  // namespace thinwire
