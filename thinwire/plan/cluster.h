// SPDX-License-Identifier: Apache-2.0
// The machines and links of a run, as measured or as imagined. A JSON file a person can edit.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {

/// A collective of M bytes on this level takes latency_s + M / bytes_per_s; cpu_s_per_byte of a
/// core goes with it.
struct Link {
  Seconds latency_s = 0;
  double bytes_per_s = 0;
  double cpu_s_per_byte = 0;
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::vector<int> ranks_per_level;  ///< innermost level first; their product is the world size
  std::map<std::string, std::vector<Link>>
      links;                  ///< collective algorithm -> one link a level; "all_reduce" must exist
  std::vector<double> speed;  ///< of each rank, relative to the profile's machine; empty: all 1
  bool shared_core = false;   ///< communication threads take time from compute
  bool operator==(const Cluster&) const = default;
};
int world_size(const Cluster& cluster);
std::string to_json(const Cluster& cluster);
Cluster cluster_from_json(std::string_view text, std::string_view source = "cluster");
void validate(const Cluster& cluster);  ///< ConfigError

/// What is imagined in place of what was measured; what is not set stays.
struct ClusterChange {
  int ranks = 0;           ///< of the whole cluster; levels inside the outermost keep theirs
  double bytes_per_s = 0;  ///< of the outermost level's links, each way
  Seconds latency_s = -1;  ///< of one message on them
};
/// The cluster with its outermost level changed. Collectives are taken as rings: an all-reduce of M
/// bytes over n ranks sends 2 M (n - 1) / n from each in 2 (n - 1) messages, any other link n - 1
/// payloads in as many. ConfigError where ranks do not divide into the levels, and where one rank
/// becomes several with neither rate nor latency known.
Cluster changed(Cluster cluster, const ClusterChange& change);

/// What point-to-point costs make of an all-reduce: start-up `latency_s` and `s_per_byte` of one
/// message, and `reduce_s_per_byte` to add a received byte.
struct PointToPoint {
  Seconds latency_s = 0;
  double s_per_byte = 0, reduce_s_per_byte = 0;
};
/// The link of an all-reduce over `ranks` (at least 2) by "ring", "recursive_doubling",
/// "halving_doubling", "tree" or "double_tree"; ConfigError otherwise. Costs as in Shi, Chu, Li
/// (INFOCOM 2019), table of all-reduce algorithms.
Link all_reduce_link(std::string_view algorithm, int ranks, const PointToPoint& cost);
/// The same in groups of `inner` ranks, the last one maybe smaller. "hierarchical": to each group's
/// first rank (2 (k - 1) messages), a ring of these, and back; about three times a ring's bytes
/// (Jia and others, 2018). "torus": reduce-scatter in the group, rings of ranks with the same place
/// in their groups, all-gather in the group; a ring's bytes.
Link grouped_all_reduce_link(std::string_view algorithm, int ranks, int inner,
                             const PointToPoint& cost);

}  // namespace thinwire
