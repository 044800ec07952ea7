// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/plan/models.h"

namespace thinwire::test {
namespace {

TEST(Wfbp, OneMessageATensorLastFirst) {
  const auto m = model(0, {3, 2, 1}, {1, 1, 2}, 3, 1);
  EXPECT_EQ(layers_of(m.group("wfbp")), (std::vector<std::vector<int>>{{3}, {2}, {1}}));
  EXPECT_DOUBLE_EQ(m.step_s("wfbp"), 14);
}

// T = the paper's recurrence, written out a second time.
TEST(Wfbp, PredictionEqualsTheRecurrence) {
  Rng rng({.seed = 1});
  for (int i = 0; i < 200; ++i) {
    const auto m = random_model(rng, 12);
    const auto ready = ready_times(m.profile);
    const Link link = m.cluster.links.at("all_reduce")[0];
    double now = 0;
    for (std::size_t l = ready.size(); l-- > 0;)
      now = std::max(now, ready[l]) + link.latency_s +
            static_cast<double>(dense_bytes(m.profile.params[l])) / link.bytes_per_s;
    EXPECT_NEAR(m.step_s("wfbp"), now, 1e-9);
  }
}

}  // namespace
}  // namespace thinwire::test
