// SPDX-License-Identifier: Apache-2.0
// MG-WFBP: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
// Algorithms" (INFOCOM 2019), https://arxiv.org/abs/1811.11141, and its journal version
// https://arxiv.org/abs/1912.09268
//   start(l) = max(start(l+1) + t(l+1), ready(l))
//   t(l) = a + b * bytes(l), and 0 once l is merged away
//   for l = L down to 2: merge l into l-1 unless
//     ready(l-1) >= start(l) + t(l)    l is through by then, nothing is gained, or
//     ready(l-1) - start(l) >= a       waiting costs as much as the start-up it saves
// Bytes: all of them; messages: as many as there are groups. Time O(L^2) at worst.
// Departs from the paper: tensors of different dtype are never merged; payloads may be compressed.
#include <algorithm>

#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

Grouping merge_wisely(const GroupInput& input) {
  const auto& params = input.profile.params;
  const auto ready = slowest_ready_times(input);
  const auto cost = all_reduce_cost(input.cluster);
  Grouping out;
  Bucket group;
  Seconds free_at = 0;  // when the message before this group is through
  for (std::size_t layer = params.size(); layer-- > 0;) {
    group.slices.push_back({static_cast<int>(layer), 0, elements(params[layer])});
    const Seconds start = std::max(free_at, ready[layer]);
    const Seconds took = cost(payload_bytes(group, input));
    if (layer > 0 && params[layer].dtype == params[layer - 1].dtype) {
      const Seconds next_ready = ready[layer - 1];
      const bool sent_by_then = next_ready >= start + took;
      const bool channel_busy = start > next_ready;
      const bool short_wait = next_ready - start < cost.start_s;
      if (!sent_by_then && (channel_busy || short_wait)) continue;
    }
    free_at = start + took;
    out.push_back(std::move(group));
    group = {};
  }
  return out;
}

}  // namespace

void register_mg_wfbp(GroupRegistry& registry) {
  registry.add(
      "mg_wfbp",
      [](const GroupInput& input, const Spec& spec) {
        SpecReader(spec).finish();
        return merge_wisely(input);
      },
      "merges a tensor into the next one where waiting costs less than a start-up, as published");
}

}  // namespace thinwire
