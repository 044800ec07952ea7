// SPDX-License-Identifier: Apache-2.0
// What thinwire plan and thinwire simulate share: the measurements they start from, and what may be
// imagined in their place.
#pragma once
#include <string>
#include <vector>

#include "thinwire/cli/verbs.h"
#include "thinwire/plan/cluster.h"
#include "thinwire/plan/profile.h"

namespace thinwire::cli {

/// --profile and --cluster, with --rate, --latency and --ranks in place of what the file says.
struct Measurements {
  std::string profile, cluster, rate, latency;
  int ranks = 0;
  bool changes() const { return !rate.empty() || !latency.empty(); }
  Profile read_profile() const;
  Cluster read_cluster() const;
};
void add_measurements(CLI::App& verb, Measurements& from);

struct PlanOptions {
  Measurements from;
  std::string grouping = "exact", form = "none", out, check;
  std::string quality, max_bytes;  ///< of a search
  std::vector<std::string> forms;
  std::string target;  ///< "ddp": what to set in PyTorch's wrapper
  bool explain = false, json = false;
  bool searches() const {
    return explain || !quality.empty() || !max_bytes.empty() || !forms.empty();
  }
};
/// Looks for the plan with the shortest step; plan_search.cpp.
int search_plan(const PlanOptions& options);
/// --for ddp: which bucket_cap_mb and communication hook; plan_ddp.cpp.
int plan_for_ddp(const PlanOptions& options);

}  // namespace thinwire::cli
