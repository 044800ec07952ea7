// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "tests/plan/models.h"

namespace thinwire::test {
namespace {

using Layers = std::vector<std::vector<int>>;

// The published listing word for word: all starts recomputed after each merge, O(L^2) in all.
Layers as_published(const Model& m) {
  const int count = static_cast<int>(m.profile.params.size());
  const auto ready = ready_times(m.profile);
  const Link link = m.cluster.links.at("all_reduce")[0];
  const auto at = [](int l) { return static_cast<std::size_t>(l - 1); };
  std::vector<double> p, t_c, start(ready.size());
  for (const auto& tensor : m.profile.params) p.push_back(static_cast<double>(dense_bytes(tensor)));
  const auto t_ar = [&](double bytes) {
    return bytes > 0 ? link.latency_s + bytes / link.bytes_per_s : 0;
  };
  for (const double bytes : p) t_c.push_back(t_ar(bytes));
  const auto compute_starts = [&] {
    for (int l = count; l >= 1; --l)
      start[at(l)] =
          l == count ? ready[at(l)] : std::max(start[at(l + 1)] + t_c[at(l + 1)], ready[at(l)]);
  };
  compute_starts();
  Layers out(1, {count});
  for (int l = count; l >= 2; --l) {
    bool merge = false;
    if (ready[at(l - 1)] >= start[at(l)] + t_c[at(l)])
      merge = false;
    else if (start[at(l)] > ready[at(l - 1)])
      merge = true;
    else if (ready[at(l - 1)] - start[at(l)] < link.latency_s)
      merge = true;
    if (merge) {
      p[at(l - 1)] += p[at(l)];
      t_c[at(l - 1)] = t_ar(p[at(l - 1)]);
      t_c[at(l)] = 0;
      compute_starts();
    } else {
      out.emplace_back();
    }
    out.back().push_back(l - 1);
  }
  return out;
}

TEST(MgWfbp, WorkedExamples) {
  const auto first = model(0, {3, 2, 1}, {1, 1, 2}, 3, 1);
  EXPECT_EQ(layers_of(first.group("mg_wfbp")), (Layers{{3, 2}, {1}}));
  EXPECT_DOUBLE_EQ(first.step_s("mg_wfbp"), 13);
  const auto second = model(2, {2, 2, 2, 2}, {4, 1, 1, 1}, 3, 1);
  EXPECT_EQ(layers_of(second.group("mg_wfbp")), (Layers{{4, 3, 2, 1}}));
  EXPECT_DOUBLE_EQ(second.step_s("mg_wfbp"), 20);
}

TEST(MgWfbp, EqualsThePublishedListing) {
  Rng rng({.seed = 2});
  int merged = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto m = random_model(rng, 20);
    const auto groups = layers_of(m.group("mg_wfbp"));
    ASSERT_EQ(groups, as_published(m)) << "instance " << i;
    merged += groups.size() < m.profile.params.size() ? 1 : 0;
  }
  EXPECT_GT(merged, 1000) << "the instances must exercise merging";
}

TEST(MgWfbp, Limits) {
  // No start-up: merging only while the channel is busy, at the time of one message a tensor.
  Rng rng({.seed = 3});
  for (int i = 0; i < 300; ++i) {
    auto m = random_model(rng, 12);
    m.cluster.links["all_reduce"][0].latency_s = 0;
    EXPECT_NEAR(m.step_s("mg_wfbp"), m.step_s("wfbp"), 1e-9);
    // Start-up without end: one message.
    m.cluster.links["all_reduce"][0].latency_s = 1e6;
    EXPECT_EQ(m.group("mg_wfbp").size(), 1u);
    // Communication for nothing: nothing is merged, if no two gradients are ready at once.
    m.cluster.links["all_reduce"][0] = {.latency_s = 0, .bytes_per_s = 1e12};
    for (auto& t : m.profile.backward_s) t += 1;
    EXPECT_EQ(m.group("mg_wfbp").size(), m.profile.params.size());
    // One rank: no communication at all.
    m.cluster.ranks_per_level = {1};
    EXPECT_NEAR(m.step_s("mg_wfbp"),
                std::accumulate(m.profile.backward_s.begin(), m.profile.backward_s.end(),
                                m.profile.forward_s[0]),
                1e-9);
  }
}

TEST(MgWfbp, NeverMergesDtypes) {
  auto m = model(0, {1, 1, 1}, {1, 1, 1}, 100, 1);
  m.profile.params[0].dtype = DType::f16;
  EXPECT_EQ(layers_of(m.group("mg_wfbp")), (Layers{{3, 2}, {1}}));
}

}  // namespace
}  // namespace thinwire::test
