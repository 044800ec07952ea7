// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/exchange.h"

#include <algorithm>
#include <array>

#include "thinwire/core/text.h"
#include "thinwire/plan/maps.h"

namespace thinwire {
namespace {
constexpr std::array<std::string_view, 10> kRoles{
    "gradient", "parameter", "delta", "activation", "activation_grad",
    "feature",  "embedding", "logit", "sample",     "statistic"};
constexpr std::array<std::string_view, 10> kPatterns{
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv",
    "mix",        "halo",           "push_pull",  "stash"};
constexpr std::array<std::string_view, 5> kPhases{"step_begin", "grad_ready", "backward_end",
                                                  "update_begin", "update_end"};
constexpr std::array<std::string_view, 4> kOpKinds{"forward", "backward", "update", "exchange"};
}  // namespace

std::string_view to_string(Role role) { return kRoles[static_cast<std::size_t>(role)]; }
std::string_view to_string(Pattern pattern) { return kPatterns[static_cast<std::size_t>(pattern)]; }
std::string_view to_string(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
std::string_view to_string(OpKind kind) { return kOpKinds[static_cast<std::size_t>(kind)]; }

std::string algorithm_fault(std::string_view name) {
  static const std::vector<std::string> algorithms{"direct", "gather", "hierarchical", "shard",
                                                   "tree"};
  if (name.empty() || std::find(algorithms.begin(), algorithms.end(), name) != algorithms.end())
    return {};
  return unknown_name("algorithm", name, algorithms);
}

}  // namespace thinwire
