// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/control_cost.h"

#include <fmt/format.h>

#include <bit>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

/// Rounds in which what one rank knows reaches n, doubling each time.
std::int64_t doublings(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

}  // namespace

Bytes bit_vector_bytes(std::int64_t units) {
  constexpr std::int64_t kStatusBits = 3, kWordBits = 64;
  return 8 * ((kStatusBits + units + kWordBits - 1) / kWordBits);
}

ControlCost control_cost(std::string_view control, std::int64_t units, std::int64_t ranks,
                         const PointToPoint& cost) {
  if (units < 1) throw ConfigError(fmt::format("control: units must be at least 1, got {}", units));
  if (ranks < 1) throw ConfigError(fmt::format("control: ranks must be at least 1, got {}", ranks));
  const bool coordinator = control == "coordinator";
  if (!coordinator && control != "bit_vector") {
    const std::vector<std::string> names{"bit_vector", "coordinator"};
    throw ConfigError(unknown_name("control", control, names));
  }
  ControlCost out;
  const std::int64_t rounds = doublings(ranks);
  const auto seconds = [&](std::int64_t messages, double bytes) {
    return static_cast<double>(messages) * cost.latency_s + bytes * cost.s_per_byte;
  };
  if (coordinator) {
    const auto list = static_cast<double>(kAnnouncementBytes * units);
    out.messages = ranks - 1;
    out.received = list * static_cast<double>(ranks - 1);
    // Rank 0 takes one message after the other; then the list goes down the tree.
    out.seconds =
        seconds(out.messages, out.received) + seconds(rounds, list * static_cast<double>(rounds));
    return out;
  }
  out.vector_bytes = bit_vector_bytes(units);
  out.messages = rounds;
  out.received = static_cast<double>(rounds * out.vector_bytes);
  out.seconds = seconds(rounds, out.received);
  return out;
}

}  // namespace thinwire
