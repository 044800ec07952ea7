// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/strategy_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

void at_least(const char* what, std::int64_t got, std::int64_t least) {
  if (got < least)
    throw ConfigError(fmt::format("strategy: {} must be at least {}, got {}", what, least, got));
}

}  // namespace

const std::vector<std::string>& costed_strategies() {
  static const std::vector<std::string> names{"ddp",   "ps_async", "ps_sync",
                                              "zero1", "zero2",    "zero3"};
  return names;
}

StrategyCost strategy_cost(std::string_view strategy, std::int64_t parameters, std::int64_t ranks,
                           std::int64_t servers, std::int64_t largest_unit,
                           const StateBytes& bytes) {
  const auto& names = costed_strategies();
  if (std::find(names.begin(), names.end(), strategy) == names.end())
    throw ConfigError(unknown_name("strategy", strategy, names));
  at_least("parameters", parameters, 1);
  at_least("ranks", ranks, 1);
  at_least("servers", servers, 1);
  at_least("largest_unit", largest_unit, 0);
  const std::int64_t shard = (parameters + ranks - 1) / ranks;
  // Each rank sends its shard, or its part of every other's, to all others: a reduce-scatter, or an
  // all-gather, of the elements that the wire has.
  const Bytes passed = (ranks - 1) * shard;
  const Bytes all = bytes.weight + bytes.gradient + bytes.optimizer;
  StrategyCost out;
  if (strategy.starts_with("ps_")) {
    const std::int64_t part = (parameters + servers - 1) / servers;
    out.worker_state = (bytes.weight + bytes.gradient) * parameters;
    out.worker_sent = (bytes.gradient + bytes.weight) * parameters;
    out.server_state = all * part;
    out.server_sent = ranks * (bytes.gradient + bytes.weight) * part;
    return out;
  }
  out.worker_sent = (bytes.gradient + bytes.weight) * passed;
  if (strategy == "ddp") {
    out.worker_state = all * parameters;
    out.worker_sent = 2 * bytes.gradient * passed;
  } else if (strategy == "zero1") {
    out.worker_state = (bytes.weight + bytes.gradient) * parameters + bytes.optimizer * shard;
  } else if (strategy == "zero2") {
    out.worker_state = bytes.weight * parameters + (bytes.gradient + bytes.optimizer) * shard;
  } else {
    out.worker_state = all * shard + (ranks > 1 ? bytes.weight * largest_unit : 0);
    out.worker_sent = (2 * bytes.weight + bytes.gradient) * passed;
  }
  return out;
}

double least_model_speedup(double devices, double efficiency, double efficiency_of_all,
                           double epochs, double epochs_of_all) {
  for (const double one : {devices, efficiency, efficiency_of_all, epochs, epochs_of_all})
    if (!(one > 0))
      throw ConfigError(fmt::format("strategy: the numbers must be above 0, got {}", one));
  return devices * (efficiency_of_all / efficiency) * (epochs / epochs_of_all);
}

}  // namespace thinwire
