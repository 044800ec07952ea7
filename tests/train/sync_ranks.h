// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with tensors of its own and the data-parallel engine around them.
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

inline std::vector<std::exception_ptr> sync_errors(int n, const std::function<void(RankWorld&)>& fn,
                                                   double timeout_s = 2,
                                                   const std::string& transport = "local") {
  auto comms = make_local(n, timeout_s, transport);
  return errors_of_ranks(n, [&](Rank rank) {
    at::set_num_threads(1);
    RankWorld world{.rank = rank, .comm = *comms[static_cast<std::size_t>(rank)]};
    fn(world);
  });
}

inline void sync_ranks(int n, const std::function<void(RankWorld&)>& fn, double timeout_s = 2,
                       const std::string& transport = "local") {
  for (const auto& error : sync_errors(n, fn, timeout_s, transport)) EXPECT_EQ(text_of(error), "");
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
