// SPDX-License-Identifier: Apache-2.0
// What happened when: the same events from the simulator (virtual time) and from the runtime
// (measured time).
#pragma once
#include <cstdint>
#include <vector>

#include "thinwire/core/types.h"
#include "thinwire/plan/maps.h"

namespace thinwire {

constexpr int kWhole = -1;  ///< index of an event that stands for all tensors at once

/// `index` is a tensor for forward and backward, an exchange id for exchange. Times count from the
/// run's start.
struct Event {
  Rank rank = 0;
  std::int64_t step = 0;
  OpKind kind = OpKind::exchange;
  int index = 0;
  Seconds begin_s = 0, end_s = 0;
  Bytes bytes = 0;  ///< sent by this rank
};
using Trace = std::vector<Event>;

}  // namespace thinwire
