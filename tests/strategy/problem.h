// SPDX-License-Identifier: Apache-2.0
// Two parameters in two buckets, pulled to another place on every rank: loss = sum (w - goal)^2
// / 2. With a learning rate of 1/2 and whole goals all values are exact.
#pragma once
#include <string>
#include <vector>

#include "tests/train/sync_ranks.h"

namespace thinwire::test {

class Problem {
 public:
  Problem(RankWorld& world, SyncOptions options)
      : rank_(world.rank), sync_({{"a", a_}, {"b", b_}}, {}, world.comm, std::move(options)) {}

  static std::vector<double> goal(Rank rank) { return {2.0 * rank + 1, 4.0 * rank}; }

  /// One step of SGD; the parameters after it.
  std::vector<double> step() {
    sync_.begin();
    const auto to = goal(rank_);
    at::Tensor loss = ((a_ - to[0]).square() + (b_ - to[1]).square()).sum() / 2;
    at::Tensor* const outputs[] = {&loss};
    sync_.mark(outputs);
    loss.backward();
    sgd({a_, b_}, 0.5);
    sync_.end_update();
    return values();
  }
  std::vector<double> values() const { return {a_.item<double>(), b_.item<double>()}; }
  GradientSync& sync() { return sync_; }

  /// What one process does that is pulled to the mean of the goals of `ranks` ranks.
  static std::vector<double> alone(int ranks, int steps) {
    std::vector<double> mean(2), w(2);
    for (Rank rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < 2; ++i) mean[i] += goal(rank)[i] / ranks;
    for (int step = 0; step < steps; ++step)
      for (std::size_t i = 0; i < 2; ++i) w[i] -= 0.5 * (w[i] - mean[i]);
    return w;
  }

 private:
  Rank rank_;
  at::Tensor a_ = parameter(at::zeros({1})), b_ = parameter(at::zeros({1}));
  GradientSync sync_;
};

}  // namespace thinwire::test
