// SPDX-License-Identifier: Apache-2.0
// What one exchange of a plan costs on a cluster, by its algorithm: bytes, latency, time on the
// wire, and the share of a core that goes with it.
#pragma once
#include <string>

#include "thinwire/plan/cluster.h"
#include "thinwire/plan/plan.h"

namespace thinwire {

struct ExchangeCost {
  Bytes sent = 0;         ///< by the rank that sends most
  Seconds latency_s = 0;  ///< before the first byte
  Seconds wire_s = 0;
  double core_share = 0;  ///< of each rank, while bytes are on the wire
};

/// The algorithm a plan's exchange will be carried out by: the one it names, else "direct" where
/// the form's payloads add, "gather" where they do not; "all_gather" for that pattern.
std::string algorithm_of(const Exchange& exchange);

/// Of a group of `ranks` ranks. A cluster may have a link of that algorithm's name, fitted to
/// payloads; otherwise its bytes travel as those of "all_reduce" do. No bytes and one rank cost
/// nothing. ConfigError for patterns other than all_reduce, all_gather and broadcast.
ExchangeCost cost_of(const Exchange& exchange, const Cluster& cluster, int ranks);

}  // namespace thinwire
