// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

std::string link_fault(const Link& link) {
  if (!std::isfinite(link.latency_s) || link.latency_s < 0)
    return fmt::format("latency_s must be finite and at least 0, got {}", link.latency_s);
  if (!std::isfinite(link.bytes_per_s) || link.bytes_per_s <= 0)
    return fmt::format("bytes_per_s must be finite and above 0, got {}", link.bytes_per_s);
  if (!std::isfinite(link.cpu_s_per_byte) || link.cpu_s_per_byte < 0)
    return fmt::format("cpu_s_per_byte must be finite and at least 0, got {}", link.cpu_s_per_byte);
  return "";
}

std::string fault(const Cluster& cluster) {
  if (cluster.ranks_per_level.empty()) return "ranks_per_level must have at least one level";
  std::int64_t ranks = 1;
  for (const int level : cluster.ranks_per_level) {
    if (level < 1) return fmt::format("ranks_per_level must be at least 1 each, got {}", level);
    ranks *= level;
    if (ranks > kMostRanks) return fmt::format("more than {} ranks", kMostRanks);
  }
  if (ranks > 1 && !cluster.links.contains("all_reduce"))
    return "links must have an entry 'all_reduce' where there is more than one rank";
  for (const auto& [name, links] : cluster.links) {
    if (links.size() != cluster.ranks_per_level.size())
      return fmt::format("links '{}': {} levels need as many links, got {}", name,
                         cluster.ranks_per_level.size(), links.size());
    for (std::size_t i = 0; i < links.size(); ++i)
      if (const auto why = link_fault(links[i]); !why.empty())
        return fmt::format("links '{}', level {}: {}", name, i, why);
  }
  if (!cluster.speed.empty() && static_cast<std::int64_t>(cluster.speed.size()) != ranks)
    return fmt::format("{} ranks need as many speeds, or none, got {}", ranks,
                       cluster.speed.size());
  for (const double speed : cluster.speed)
    if (!std::isfinite(speed) || speed <= 0)
      return fmt::format("speed must be finite and above 0, got {}", speed);
  return "";
}

}  // namespace

int world_size(const Cluster& cluster) {
  int ranks = 1;
  for (const int level : cluster.ranks_per_level) ranks *= level;
  return ranks;
}

std::string to_json(const Cluster& cluster) {
  Json links = Json::object();
  for (const auto& [name, levels] : cluster.links)
    for (const auto& link : levels)
      links[name].push_back({{"latency_s", link.latency_s},
                             {"bytes_per_s", link.bytes_per_s},
                             {"cpu_s_per_byte", link.cpu_s_per_byte}});
  return dump_lines({{"ranks_per_level", cluster.ranks_per_level},
                     {"links", links},
                     {"speed", cluster.speed},
                     {"shared_core", cluster.shared_core}},
                    "cluster");
}

Cluster cluster_from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  known_keys(json, {"note", "ranks_per_level", "links", "speed", "shared_core"}, source);
  Cluster out;
  out.ranks_per_level = get<std::vector<int>>(json, "ranks_per_level", source);
  const Json links = get_or<Json>(json, "links", Json::object(), source);
  if (!links.is_object()) throw DataError(fmt::format("{}: 'links' must be an object", source));
  for (const auto& [name, levels] : links.items())
    for (const auto& item : get<Json::array_t>(links, name.c_str(), source)) {
      const auto place =
          fmt::format("{}: links '{}', level {}", source, name, out.links[name].size());
      known_keys(item, {"latency_s", "bytes_per_s", "cpu_s_per_byte"}, place);
      out.links[name].push_back({get<double>(item, "latency_s", place),
                                 get<double>(item, "bytes_per_s", place),
                                 get_or<double>(item, "cpu_s_per_byte", 0, place)});
    }
  out.speed = get_or<std::vector<double>>(json, "speed", {}, source);
  out.shared_core = get_or(json, "shared_core", false, source);
  if (const auto why = fault(out); !why.empty())
    throw ConfigError(fmt::format("{}: {}", source, why));
  return out;
}

void validate(const Cluster& cluster) {
  if (const auto why = fault(cluster); !why.empty()) throw ConfigError("cluster: " + why);
}

Cluster changed(Cluster cluster, const ClusterChange& change) {
  const int inner = world_size(cluster) / cluster.ranks_per_level.back();
  const int before = cluster.ranks_per_level.back();
  int ranks = before;
  if (change.ranks != 0) {
    if (change.ranks < inner || change.ranks % inner != 0)
      throw ConfigError(
          fmt::format("ranks must be a multiple of {}, those of the inner levels, got {}", inner,
                      change.ranks));
    ranks = change.ranks / inner;
  }
  if (change.bytes_per_s < 0 || !std::isfinite(change.bytes_per_s))
    throw ConfigError(fmt::format("rate must be finite and above 0, got {}", change.bytes_per_s));
  const bool known = before > 1;
  if (!known && ranks > 1 && (change.bytes_per_s == 0 || change.latency_s < 0))
    throw ConfigError(
        fmt::format("{} ranks need a rate and a latency, for the cluster has one", change.ranks));
  if (!cluster.links.contains("all_reduce"))
    cluster.links["all_reduce"] =
        std::vector<Link>(cluster.ranks_per_level.size(), Link{.latency_s = 0, .bytes_per_s = 1});
  for (auto& [name, levels] : cluster.links) {
    const bool reduces = name == "all_reduce";
    const auto messages = [&](int n) { return reduces ? 2.0 * (n - 1) : n - 1.0; };
    // Bytes sent for a byte of payload.
    const auto share = [&](int n) { return reduces ? 2.0 * (n - 1) / n : n - 1.0; };
    Link& link = levels.back();
    const double rate =
        change.bytes_per_s > 0 || !known ? change.bytes_per_s : link.bytes_per_s * share(before);
    const double latency =
        change.latency_s >= 0 || !known ? change.latency_s : link.latency_s / messages(before);
    if (ranks <= 1) continue;
    if (known) link.cpu_s_per_byte *= share(ranks) / share(before);
    link.bytes_per_s = rate / share(ranks);
    link.latency_s = latency * messages(ranks);
  }
  cluster.ranks_per_level.back() = ranks;
  if (change.ranks != 0 && !cluster.speed.empty() &&
      static_cast<int>(cluster.speed.size()) != world_size(cluster)) {
    // The slowest sets the pace wherever it stands.
    const double slowest = *std::min_element(cluster.speed.begin(), cluster.speed.end());
    cluster.speed.assign(static_cast<std::size_t>(world_size(cluster)), slowest);
  }
  validate(cluster);
  return cluster;
}

Link all_reduce_link(std::string_view algorithm, int ranks, const PointToPoint& cost) {
  if (ranks < 2)
    throw ConfigError(fmt::format("an all-reduce needs at least 2 ranks, got {}", ranks));
  const double n = ranks, rounds = std::log2(n);
  const double alpha = cost.latency_s, beta = cost.s_per_byte, gamma = cost.reduce_s_per_byte;
  const auto link = [](double latency_s, double s_per_byte) {
    return Link{.latency_s = latency_s, .bytes_per_s = 1 / s_per_byte};
  };
  if (algorithm == "ring")
    return link(2 * (n - 1) * alpha, 2 * (n - 1) / n * beta + (n - 1) / n * gamma);
  if (algorithm == "recursive_doubling") return link(rounds * alpha, rounds * (beta + gamma));
  if (algorithm == "halving_doubling")
    return link(2 * rounds * alpha, 2 * beta - (2 * beta + gamma) / n + gamma);
  if (algorithm == "tree") return link(2 * rounds * alpha, rounds * (2 * beta + gamma));
  if (algorithm == "double_tree") return link(2 * rounds * alpha, beta + gamma);
  const std::vector<std::string> names{"double_tree", "halving_doubling", "recursive_doubling",
                                       "ring", "tree"};
  throw ConfigError(unknown_name("all-reduce algorithm", algorithm, names));
}

Link grouped_all_reduce_link(std::string_view algorithm, int ranks, int inner,
                             const PointToPoint& cost) {
  if (inner < 1 || inner > ranks)
    throw ConfigError(fmt::format("inner must be in [1, {}], got {}", ranks, inner));
  const std::vector<std::string> names{"hierarchical", "torus"};
  if (algorithm != names[0] && algorithm != names[1])
    throw ConfigError(unknown_name("all-reduce algorithm", algorithm, names));
  const double k = inner, groups = std::ceil(static_cast<double>(ranks) / k);
  const double beta = cost.s_per_byte, gamma = cost.reduce_s_per_byte;
  const double in_group = (k - 1) / k, between = (groups - 1) / groups;
  Link out;
  double per_byte = 0;
  if (algorithm == "hierarchical") {
    out.latency_s = (4 * (k - 1) + 2 * (groups - 1)) * cost.latency_s;
    // Inside: reduce-scatter and gather to the first rank, then the same cost back.
    per_byte = 4 * in_group * beta + 2 * between * beta + (in_group + between) * gamma;
  } else {
    out.latency_s = (2 * (k - 1) + 2 * (groups - 1)) * cost.latency_s;
    per_byte = (2 * in_group + 2 * between / k) * beta + (in_group + between / k) * gamma;
  }
  out.bytes_per_s = 1 / per_byte;
  return out;
}

}  // namespace thinwire
