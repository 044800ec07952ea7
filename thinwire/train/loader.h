// SPDX-License-Identifier: Apache-2.0
// Batches of a data set, shuffled, shared out over the ranks and prepared ahead. A batch depends on
// (seed, epoch, index, rank, ranks) alone: any number of threads gives the same bytes, and the
// joined batch of all ranks is the same for any number of ranks. No torch.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "thinwire/core/types.h"
#include "thinwire/train/data.h"

namespace thinwire {

/// One rank's share of one global batch. A rank may have no sample of a small last batch.
struct Batch {
  std::int64_t epoch = 0, index = 0;  ///< index within the epoch
  std::int64_t count = 0;             ///< samples here
  std::int64_t total = 0;             ///< samples of all ranks together
  std::vector<std::int64_t> samples;  ///< which ones
  std::vector<float> images;          ///< count x channels x height x width, normalised
  std::vector<std::int64_t> symbols;  ///< of text: count x context
  std::vector<std::int64_t> targets;  ///< count, or count x context
};

struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< of all ranks together
  Rank rank = 0;
  int ranks = 1;
  std::uint64_t seed = 0;
  bool shuffle = true, crop_flip = false;
  int threads = 1;  ///< 0: next() prepares the batch itself
};

/// Begin and count of `rank`'s share of `total` samples: contiguous, the first ranks get one more.
struct Share {
  std::int64_t begin = 0, count = 0;
};
Share share_of(std::int64_t total, Rank rank, int ranks);

class Loader {
 public:
  /// `data` and `set` (one of data's two) outlive the loader. ConfigError for an empty set.
  Loader(const Dataset& data, const SampleSet& set, const LoaderOptions& options);
  ~Loader();  ///< ends the threads; they never wait for anything but work
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches_per_epoch() const { return batches_; }
  /// The batch of global step `step` (epoch step / batches, index step % batches). Batches are
  /// prepared ahead in rising order; another step than the next one starts over there. The batch
  /// stays valid until the next call. Throws what preparing threw.
  const Batch& at(std::int64_t step);

 private:
  struct Slot {
    std::int64_t step = -1;
    bool ready = false;
    std::exception_ptr error;
    Batch batch;
  };
  void prepare(std::int64_t step, Batch& out);
  void work();
  std::shared_ptr<const std::vector<std::int32_t>> order_of(std::int64_t epoch);

  const Dataset& data_;
  const SampleSet& set_;
  LoaderOptions options_;
  std::int64_t batches_;
  std::vector<float> table_;  // normalised value of each channel and byte

  std::mutex order_mutex_;
  std::int64_t order_epoch_[2] = {-1, -1};
  std::shared_ptr<const std::vector<std::int32_t>> order_[2];

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::int64_t next_ = 0;     // the step that at() is expected to ask for
  std::int64_t claimed_ = 0;  // the step that a thread takes next
  bool end_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace thinwire
