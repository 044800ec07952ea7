// SPDX-License-Identifier: Apache-2.0
// Runs a plan in virtual time: the very plan that the runtime runs, on measured or imagined layer
// times and links. A pure function; the same inputs give the same trace.
//
// The model. A rank computes forward (first tensor to last), backward (last to first) and update,
// one thing at a time. An exchange starts on a rank at its phase, in plan order: the rank encodes,
// which takes its time from compute, and goes on. Once all ranks of the group have started it, it
// travels: latency, then bytes, one exchange at a time for each rank, the larger priority first,
// then the older. One with a chunk lets a more urgent one pass between two chunks. Where its value
// is needed a rank waits for it and decodes. Needed at step_begin, a bucket is needed when the
// forward of its first tensor begins; of lag k, k steps later than it started.
// Where communication and compute share a core (Cluster::shared_core), compute runs slower while
// bytes are on the wire, by Link::cpu_s_per_byte.
#pragma once
#include <cstdint>
#include <vector>

#include "thinwire/plan/cluster.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/profile.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

struct SimOptions {
  int steps = 1;
  std::uint64_t seed = 0;
  /// The standard deviation of a rank's computation from step to step, as a share of it; ranks vary
  /// by themselves.
  double jitter = 0;
};

/// Events of forward and backward a tensor, exchanges, and one update a step, ordered by their
/// ends. Ranks that would do the same at the same times are simulated, and stand in the trace,
/// once: as the lowest of them. ConfigError for a plan that does not fit profile or cluster, for an
/// exchange that is needed before it starts, and for options out of range.
Trace simulate(const Plan& plan, const Profile& profile, const Cluster& cluster,
               const SimOptions& options = {});

/// The length of each step of a trace: from the end of the last rank's update to that of the next.
std::vector<Seconds> step_seconds(const Trace& trace);

}  // namespace thinwire
