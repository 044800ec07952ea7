// SPDX-License-Identifier: Apache-2.0
// Ranks as threads or processes, each with tensors of its own and the data-parallel engine around
// them.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/either_way.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/train/gradient_sync.h"

namespace thinwire::test {

inline at::Tensor parameter(at::Tensor value) { return value.detach().clone().requires_grad_(); }

/// What a rank's function gets.
struct RankWorld {
  Rank rank;
  Comm& comm;
  std::vector<std::string> notices;
  SyncOptions options(std::string grouping = "size_cap") {
    return {.grouping = std::move(grouping),
            .notice = [this](const std::string& text) { notices.push_back(text); }};
  }
};

/// Where the ranks of the current test live.
inline RanksAre ranks_are = RanksAre::threads;

/// The tests of the list of known failures run with ranks of both kinds.
class KnownFailures : public ::testing::TestWithParam<RanksAre> {
 protected:
  void SetUp() override { ranks_are = GetParam(); }
  void TearDown() override { ranks_are = RanksAre::threads; }
};

/// What each rank threw, as text.
inline std::vector<std::string> sync_errors(int n, const std::function<void(RankWorld&)>& fn,
                                            double timeout_s = 2,
                                            const std::string& decorators = "") {
  return run_ranks(
      ranks_are, n,
      [&](Comm& comm) {
        at::set_num_threads(1);
        RankWorld world{.rank = comm.rank(), .comm = comm};
        fn(world);
      },
      timeout_s, decorators);
}

inline void sync_ranks(int n, const std::function<void(RankWorld&)>& fn, double timeout_s = 2,
                       const std::string& decorators = "") {
  for (const auto& error : sync_errors(n, fn, timeout_s, decorators)) EXPECT_EQ(error, "");
}

/// Forward and backward of one step.
inline void backward(GradientSync& sync, const std::function<at::Tensor()>& forward) {
  sync.begin();
  at::Tensor out = forward();
  at::Tensor* const outputs[] = {&out};
  sync.mark(outputs);
  out.backward();
}

inline bool all_equal(const at::Tensor& tensor, double value) {
  return tensor.defined() && (tensor == value).all().item<bool>();
}

/// One SGD step and cleared gradients, as an optimizer does it.
inline void sgd(const std::vector<at::Tensor>& parameters, double lr, bool set_to_none = true) {
  const at::NoGradGuard no_grad;
  for (at::Tensor p : parameters) {
    if (!p.grad().defined()) continue;
    p.sub_(p.grad(), lr);
    if (set_to_none)
      p.mutable_grad().reset();
    else
      p.mutable_grad().zero_();
  }
}

}  // namespace thinwire::test
