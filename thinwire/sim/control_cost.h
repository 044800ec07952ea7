// SPDX-License-Identifier: Apache-2.0
// What ranks spend on agreeing which gradients are ready everywhere, in one cycle (Laanait and
// others, "Exascale Deep Learning for Scientific Inverse Problems", 2019).
//   coordinator  every rank tells rank 0 the name, shape and type of each ready tensor; rank 0
//                sends the list of those that all have, along a binary tree
//   bit_vector   one all-reduce by AND of 3 status bits and a bit a tensor, in words of 64, by
//                recursive doubling
#pragma once
#include <cstdint>
#include <string_view>

#include "thinwire/plan/cluster.h"

namespace thinwire {

/// What one tensor's announcement has: name, shape, type, device.
constexpr Bytes kAnnouncementBytes = 60;

struct ControlCost {
  Bytes vector_bytes = 0;     ///< of one message; bit_vector only
  double received = 0;        ///< bytes of the busiest rank
  std::int64_t messages = 0;  ///< that it receives
  Seconds seconds = 0;        ///< until the last rank knows
};
/// 8 bytes for each 64 of 3 + `units` bits.
Bytes bit_vector_bytes(std::int64_t units);
/// `units`: tensors, or groups of them, that become ready in one cycle. ConfigError for another
/// control than "coordinator" and "bit_vector", and for fewer than 1 rank or unit.
ControlCost control_cost(std::string_view control, std::int64_t units, std::int64_t ranks,
                         const PointToPoint& cost);

}  // namespace thinwire
