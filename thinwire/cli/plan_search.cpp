// SPDX-License-Identifier: Apache-2.0
// thinwire plan --quality ...: the plan with the shortest simulated step, and why.
#include <fmt/format.h>

#include "thinwire/cli/plan.h"
#include "thinwire/core/text.h"
#include "thinwire/sim/search.h"

namespace thinwire::cli {

Profile Measurements::read_profile() const {
  return load(profile, [](auto text, auto path) { return profile_from_json(text, path); });
}

Cluster Measurements::read_cluster() const {
  const Cluster measured =
      load(cluster, [](auto text, auto path) { return cluster_from_json(text, path); });
  if (!changes() && ranks == 0) return measured;
  if (ranks < 0) throw ConfigError(fmt::format("--ranks must be at least 1, got {}", ranks));
  ClusterChange change{.ranks = ranks};
  if (!rate.empty()) change.bytes_per_s = parse_rate(rate);
  if (!latency.empty()) change.latency_s = parse_seconds(latency);
  return changed(measured, change);
}

void add_measurements(CLI::App& verb, Measurements& from) {
  verb.add_option("--profile", from.profile,
                  "Layer times and sizes (JSON), as 'thinwire profile' "
                  "writes them");
  verb.add_option("--cluster", from.cluster, "Ranks and links (JSON)");
  verb.add_option("--rate", from.rate, "Of the links, in place of the cluster's: 100mbit, 1gbit");
  verb.add_option("--latency", from.latency, "Of one message, in place of the cluster's: 0.2ms");
  verb.add_option("--ranks", from.ranks, "In place of the cluster's");
}

int search_plan(const PlanOptions& options) {
  const Profile profile = options.from.read_profile();
  const Cluster cluster = options.from.read_cluster();
  const SearchOptions asked{
      .quality = options.quality.empty() ? Quality::same : parse_quality(options.quality),
      .forms = options.forms,
      .max_bytes_per_step = options.max_bytes.empty() ? 0 : parse_bytes(options.max_bytes)};
  const Choice choice = search(profile, cluster, asked);
  if (!options.out.empty()) write_text(options.out, to_json(choice.plan));
  if (options.json) {
    Json out = to_json(choice);
    out["profile"] = options.from.profile;
    out["cluster"] = options.from.cluster;
    out["quality"] = to_string(asked.quality);
    out["ranks"] = world_size(cluster);
    if (!options.out.empty()) out["out"] = options.out;
    fmt::print("{}\n", dump(out, "plan"));
    return kOk;
  }
  fmt::print("{}", explain(choice));
  if (options.out.empty())
    fmt::print("'--out plan.json' writes the plan marked *\n");
  else
    fmt::print("wrote {}: {} exchanges\n", options.out, choice.plan.exchanges.size());
  return kOk;
}

}  // namespace thinwire::cli
