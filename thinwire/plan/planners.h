// SPDX-License-Identifier: Apache-2.0
// Planner functions: pure functions from measurements to one map, each kind in a registry of its
// own.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/cluster.h"
#include "thinwire/plan/maps.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// What a grouping is chosen for. The payload of a bucket is affine in its dense bytes unless
/// `payload` says otherwise; affine payloads let planners run on running sums (a planner may call
/// `payload` once for each pair of tensors).
struct GroupInput {
  const Profile& profile;
  const Cluster& cluster;
  std::function<Bytes(const Bucket&)>
      payload;                ///< bytes that one rank's payload of a bucket has; empty: affine
  double fixed_bytes = 0;     ///< affine: payload = fixed_bytes + bytes_per_byte * dense bytes
  double bytes_per_byte = 1;  ///< 1: dense
};
/// What a grouping planner says: the buckets, and how often each is sent.
struct Grouped {
  Grouped() = default;
  Grouped(Grouping buckets) : grouping(std::move(buckets)) {}  // NOLINT: most say no more
  Grouping grouping;
  int every = 1;  ///< bucket b is sent in steps where (step + b + 1) % every == 0
  /// Of parameters of which nothing is sent in a step: no gradient instead of zeros, so that
  /// optimizers leave them and their state alone.
  bool frozen = false;
};
using GroupFn = std::function<Grouped(const GroupInput&, const Spec&)>;
using GroupRegistry = Registry<GroupFn>;

const GroupRegistry& groupings();
/// Runs the grouping named by `spec` and checks that every element stands in exactly one bucket.
Grouping make_grouping(const Spec& spec, const GroupInput& input);
Grouped make_grouped(const Spec& spec, const GroupInput& input);
/// The same where nothing has been measured: every tensor takes no time, and the link is a
/// stand-in. No tensors: no buckets.
Grouped make_unmeasured_grouping(const Spec& spec, const std::vector<TensorDesc>& params,
                                 int ranks);

/// Empty, or the first reason why `grouping` does not fit the tensors: an element that stands in no
/// bucket or in two, a bucket without slices, a bucket of several dtypes.
std::string grouping_fault(const Grouping& grouping, const std::vector<TensorDesc>& tensors);

/// Seconds of one all-reduce of `bytes` over the whole cluster: latency + bytes / rate, summed over
/// the levels that have more than one rank; 0 for no bytes.
struct AffineCost {
  Seconds start_s = 0, per_byte_s = 0;
  Seconds operator()(double bytes) const { return bytes > 0 ? start_s + per_byte_s * bytes : 0; }
};
AffineCost all_reduce_cost(const Cluster& cluster);
/// The payload bytes of a bucket under `input`.
double payload_bytes(const Bucket& bucket, const GroupInput& input);
/// Whole tensors in backward order, each dtype filling buckets of its own. A bucket is closed where
/// `full` says so, asked before each tensor with the bytes the bucket has and those of the tensor.
/// Buckets stand in the order in which they become ready.
Grouping fill_backward(const std::vector<TensorDesc>& params,
                       const std::function<bool(DType dtype, Bytes has, Bytes next)>& full);
/// As PyTorch's DistributedDataParallel fills its buckets from the second step on: closed once they
/// have reached `cap` dense bytes, the first of a dtype `first`.
Grouping fill_as_ddp(const std::vector<TensorDesc>& params, Bytes first, Bytes cap);
Bucket whole_tensors(const std::vector<int>& tensors, const std::vector<TensorDesc>& descs);
/// ready_times of the slowest rank of the cluster.
std::vector<Seconds> slowest_ready_times(const GroupInput& input);

/// The step time the MG-WFBP cost model predicts for a grouping: exchanges in order, one at a time,
/// each latency + bytes / rate, a bucket ready when its last gradient is (Shi, Chu, Li, INFOCOM
/// 2019). Of a bucket in `every` steps only: the mean over these steps.
Seconds predict_step_s(const Grouped& grouped, const GroupInput& input);

/// COVAP's interval: the least number of steps over which the wire keeps up with the computation
/// that it may hide behind, of the time that one dense exchange takes over that of the computation.
/// ConfigError for a ratio that is no number of at least 0.
int interval_of_ratio(double communication_over_computation);

}  // namespace thinwire
