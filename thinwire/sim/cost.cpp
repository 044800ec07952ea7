// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

/// What an all_reduce of the same payload sends.
double all_reduce_bytes(double payload, int ranks) { return 2 * payload * (ranks - 1) / ranks; }

/// docs/costs.md, as a formula.
double sent_bytes(const std::string& algorithm, double payload, int ranks) {
  if (algorithm == "gather" || algorithm == "all_gather") return payload * (ranks - 1);
  if (algorithm == "broadcast") return payload;
  return all_reduce_bytes(payload, ranks);
}

}  // namespace

std::string algorithm_of(const Exchange& exchange) {
  if (exchange.pattern == Pattern::all_gather || exchange.pattern == Pattern::broadcast)
    return std::string(to_string(exchange.pattern));
  if (exchange.pattern != Pattern::all_reduce)
    throw ConfigError(fmt::format("exchange {}: what {} costs is not known", exchange.id,
                                  to_string(exchange.pattern)));
  if (!exchange.algorithm.empty()) return exchange.algorithm;
  return payload_sums(exchange.form) ? "direct" : "gather";
}

ExchangeCost cost_of(const Exchange& exchange, const Cluster& cluster, int ranks) {
  const std::string algorithm = algorithm_of(exchange);
  const auto payload = static_cast<double>(exchange.payload);
  ExchangeCost out;
  if (ranks <= 1 || exchange.payload == 0) return out;
  const double sent = sent_bytes(algorithm, payload, ranks);
  out.sent = static_cast<Bytes>(sent);
  const bool fitted = cluster.links.contains(algorithm);
  const auto& links = cluster.links.at(fitted ? algorithm : "all_reduce");
  // A link's bytes are those of a payload; of another algorithm's, as many as an all_reduce would
  // need to send the same.
  const double bytes = fitted ? payload : sent / all_reduce_bytes(1, ranks);
  for (std::size_t level = 0; level < cluster.ranks_per_level.size(); ++level) {
    if (cluster.ranks_per_level[level] <= 1) continue;
    const Link& link = links.at(level);
    out.latency_s += link.latency_s;
    out.wire_s += bytes / link.bytes_per_s;
    out.core_share += link.cpu_s_per_byte * bytes;
  }
  out.core_share = out.wire_s > 0 ? std::min(1.0, out.core_share / out.wire_s) : 0;
  return out;
}

}  // namespace thinwire
