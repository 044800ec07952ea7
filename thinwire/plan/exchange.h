// SPDX-License-Identifier: Apache-2.0
// The one sentence of Thinwire: what moves, with whom, combined how, in which form, started when,
// needed when. Every method is a set of such exchanges; planners, simulator and runtime read the
// same ones.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"

namespace thinwire {

enum class Role : std::uint8_t {
  gradient,
  parameter,
  delta,
  activation,
  activation_grad,
  feature,
  embedding,
  logit,
  sample,
  statistic
};
enum class Pattern : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send_recv,
  mix,
  halo,
  push_pull,
  stash
};
enum class Phase : std::uint8_t { step_begin, grad_ready, backward_end, update_begin, update_end };

/// Fires in steps where (step + offset) % every == 0; `lag` counts steps from start to need.
struct When {
  Phase phase = Phase::grad_ready;
  int every = 1, offset = 0, lag = 0;
  bool operator==(const When&) const = default;
};

inline bool fires(const When& when, std::int64_t step) {
  return (step + when.offset) % when.every == 0;
}

struct Exchange {
  int id = 0;                  ///< position in the plan; also the order of starting
  Role what = Role::gradient;  ///< what moves
  int bucket = 0;              ///< index into the plan's grouping; -1: not grouped (statistics)
  int group = 0;               ///< with whom: index into the plan's groups
  Pattern pattern = Pattern::all_reduce;
  Combine combine = Combine::mean;
  std::vector<Spec> form;  ///< in which form: memories, then a codec
  When start, need;        ///< started when, needed when
  Bytes payload = 0;       ///< predicted bytes of one rank's payload; exact for fixed-size codecs
  std::string algorithm;   ///< direct, gather, shard, tree, hierarchical; empty: chosen
  Bytes chunk = 0;         ///< 0: the transport's own
  int priority = 0;        ///< larger goes first where links are shared
  bool operator==(const Exchange&) const = default;
};

std::string_view to_string(Role role);
std::string_view to_string(Pattern pattern);
std::string_view to_string(Phase phase);
/// Why `name` is no algorithm of an exchange; empty if it is one, or is empty.
std::string algorithm_fault(std::string_view name);

}  // namespace thinwire
