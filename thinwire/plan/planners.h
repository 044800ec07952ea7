// SPDX-License-Identifier: Apache-2.0
// Planner functions: pure functions from measurements to one map, each kind in a registry of its own.
#pragma once
#include <functional>

#include "thinwire/core/registry.h"
#include "thinwire/plan/cluster.h"
#include "thinwire/plan/maps.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// Bytes that one rank's payload of a bucket has. `affine` says payload = fixed + bytes_per_element * elements for
/// every bucket, which lets planners run on prefix sums.
struct GroupInput {
  const Profile& profile;
  const Cluster& cluster;
  std::function<Bytes(const Bucket&)> payload;  ///< empty: dense bytes
};
using GroupFn = std::function<Grouping(const GroupInput&, const Spec&)>;
using GroupRegistry = Registry<GroupFn>;

const GroupRegistry& groupings();
/// Runs the grouping named by `spec` and checks that every element stands in exactly one bucket.
Grouping make_grouping(const Spec& spec, const GroupInput& input);

/// The step time the MG-WFBP cost model predicts for a grouping: exchanges in order, one at a time, each
/// latency + bytes / rate, a bucket ready when its last gradient is (Shi, Chu, Li, INFOCOM 2019).
Seconds predict_step_s(const Grouping& grouping, const GroupInput& input);

}  // namespace thinwire
