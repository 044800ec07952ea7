// SPDX-License-Identifier: Apache-2.0
// A plan is data: exchanges and maps. Planners make it, the simulator and the runtime read it, a
// person can edit it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/plan/cluster.h"
#include "thinwire/plan/exchange.h"
#include "thinwire/plan/maps.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

struct Group {
  std::vector<Rank> ranks;  ///< world ranks, rising
  Spec topology{.name = "all"};
  bool operator==(const Group&) const = default;
};

struct Plan {
  std::vector<TensorDesc> tensors;
  Grouping grouping;
  std::vector<Group> groups;
  std::vector<Exchange> exchanges;
  Schedule schedule;
  std::vector<ShardMap> shards;
  std::vector<HaloMap> halos;
  bool operator==(const Plan&) const = default;
};

/// Refuses a plan that cannot run on `ranks` ranks: ConfigError that names the exchange, the rule
/// and the value.
void validate(const Plan& plan, int ranks);
void validate(const Plan& plan, const Cluster& cluster);
/// Equal plans have equal digests on every machine; compared on all ranks before step 0.
std::uint64_t digest(const Plan& plan);
std::string to_json(const Plan& plan);
Plan plan_from_json(std::string_view text, std::string_view source = "plan");
/// The first difference in words ("exchange 3: bucket 2 against 4"), empty if equal.
std::string first_difference(const Plan& a, const Plan& b);

/// Plain data parallelism: one mean all_reduce of gradients a bucket, started when its gradients
/// are ready and needed before the update, in the given form; each once in `every` steps.
Plan data_parallel_plan(std::vector<TensorDesc> tensors, Grouping grouping, int ranks,
                        const std::vector<Spec>& form, int every = 1);

}  // namespace thinwire
