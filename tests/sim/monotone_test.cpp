// SPDX-License-Identifier: Apache-2.0
// A simulated step is never shorter on a slower network or with more ranks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/plan/models.h"
#include "thinwire/sim/search.h"

namespace thinwire {
namespace {

using test::Model;

/// A model of up to twelve layers on two to nine ranks, and a plan in one of the groupings.
struct Instance {
  Model model;
  Plan plan;
  Seconds step_s(const Cluster& cluster) const {
    const Plan fit = data_parallel_plan(plan.tensors, plan.grouping, world_size(cluster),
                                        plan.exchanges.front().form);
    return steady_step_s(fit, model.profile, cluster);
  }
};

Instance draw() {
  const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1 << 30);
  Rng rng({.seed = seed, .exchange = -1, .step = 0, .rank = 0});
  Instance out{.model = test::random_model(rng, 12)};
  for (TensorDesc& tensor : out.model.profile.params) tensor.dtype = DType::f32;
  const int ranks = *rc::gen::inRange(2, 10);
  out.model.cluster = changed(out.model.cluster, {.ranks = ranks});
  const auto grouping = *rc::gen::element<std::string>("wfbp", "single", "exact", "mg_wfbp",
                                                       "size_cap{bytes=16}", "even_bytes{count=3}");
  const auto form = *rc::gen::element<std::string>("none", "topk{ratio=0.3}", "sign");
  out.plan = data_parallel_plan(out.model.profile.params, out.model.group(grouping), ranks,
                                parse_chain(form));
  return out;
}

RC_GTEST_PROP(Monotone, ASlowerLinkMakesNoStepShorter, ()) {
  const Instance one = draw();
  Cluster slower = one.model.cluster;
  const double by = 1 + *rc::gen::inRange(0, 40) / 10.0;
  for (auto& [name, levels] : slower.links)
    for (Link& link : levels) link.bytes_per_s /= by;
  RC_ASSERT(one.step_s(slower) >= one.step_s(one.model.cluster) - 1e-9);
}

RC_GTEST_PROP(Monotone, ALatencyMakesNoStepShorter, ()) {
  const Instance one = draw();
  Cluster later = one.model.cluster;
  const double by = *rc::gen::inRange(0, 50) / 10.0;
  for (auto& [name, levels] : later.links)
    for (Link& link : levels) link.latency_s += by;
  RC_ASSERT(one.step_s(later) >= one.step_s(one.model.cluster) - 1e-9);
}

RC_GTEST_PROP(Monotone, MoreRanksMakeNoStepShorter, ()) {
  const Instance one = draw();
  const int ranks = world_size(one.model.cluster);
  const Cluster larger = changed(one.model.cluster, {.ranks = ranks + *rc::gen::inRange(0, 60)});
  RC_ASSERT(one.step_s(larger) >= one.step_s(one.model.cluster) - 1e-9);
}

RC_GTEST_PROP(Monotone, ASlowerRankMakesNoStepShorter, ()) {
  const Instance one = draw();
  Cluster slower = one.model.cluster;
  slower.speed.assign(static_cast<std::size_t>(world_size(slower)), 1.0);
  const auto which = *rc::gen::inRange<std::size_t>(0, slower.speed.size());
  slower.speed[which] = 1 / (1 + *rc::gen::inRange(0, 30) / 10.0);
  RC_ASSERT(one.step_s(slower) >= one.step_s(one.model.cluster) - 1e-9);
}

}  // namespace
}  // namespace thinwire
