// SPDX-License-Identifier: Apache-2.0
// Averages buckets that another engine fills, PyTorch's DistributedDataParallel through its
// communication hook: that engine decides what is in a bucket and when it leaves, this one in which
// form.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/exchange/exchanger.h"
#include "thinwire/train/gradient_sync.h"

namespace thinwire {

/// One engine's buckets on one rank. Everything but state() is collective, in the same order on all
/// ranks. Buckets may change between steps (DDP makes them anew after its first): what memories
/// keep follows the parameters. An error leaves it unusable.
class BucketSync {
 public:
  /// `world` outlives it. form, algorithm, seed: as SyncOptions. ConfigError for what is misspelt.
  BucketSync(Comm& world, std::string form, std::string algorithm, std::uint64_t seed);
  ~BucketSync();
  /// Starts the mean over ranks of `flat`, in place: the gradients of `members` (the parameters, by
  /// name), side by side, in host memory. Once a bucket and step; `flat` is left alone until
  /// finish().
  void start(int bucket, const std::vector<NamedTensor>& members, const at::Tensor& flat);
  /// Waits for all that has been started. A step with a value that is not finite on some rank does
  /// not count: all buckets come out as NaN on all ranks, so that a gradient scaler skips it as it
  /// would skip a plain sum, and memories stay as they were. A form that is the values themselves
  /// sums them as they are.
  void finish();
  /// This rank's own share of what memories and codecs keep, and what is the same on all.
  FormState state() const;
  /// Before the first start.
  void load_state(FormState state);
  /// Steps so far: the number of the coming one. Settable before the first start.
  std::int64_t step() const { return step_; }
  void set_step(std::int64_t step) { step_ = step; }

 private:
  struct One;
  void set_up(One& one, const std::vector<NamedTensor>& members);
  bool counts_everywhere();

  Comm& world_;
  std::string form_, algorithm_;
  std::uint64_t seed_;
  std::int64_t step_ = 0;
  Recorder recorder_;
  std::map<int, std::unique_ptr<One>> buckets_;
  FormState kept_;  ///< of buckets that are no longer there
};

}  // namespace thinwire
