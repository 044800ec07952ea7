// SPDX-License-Identifier: Apache-2.0
// What the network between the ranks does, from collectives of real bytes. No torch.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/plan/cluster.h"
#include "thinwire/plan/fit.h"

namespace thinwire {

struct MeasuredCluster {
  Cluster cluster;  ///< one level; speeds and shared_core are the caller's to fill
  std::map<std::string, std::vector<TimedSize>> points;  ///< by algorithm, as links are
  std::map<std::string, double> residual;                ///< of each fit
};

/// Collective, a few seconds: all_reduce and all_gather (as "gather") from 4 KB up, four times as
/// much each time, to `largest` bytes (at least 1 MiB) or to what a tenth of a second carries. The
/// same on every rank. One rank has no links.
MeasuredCluster measure_cluster(Comm& world, Bytes largest);

}  // namespace thinwire
