// SPDX-License-Identifier: Apache-2.0
// Options of the tcp transport, equal on all ranks:
// "tcp{algorithm=shard,chunk=256KiB,eager=64KiB,congestion=cubic}".
#pragma once
#include <string>

#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"

namespace thinwire::tcp {

enum class AllReduce : std::uint8_t { chosen, shard, gather };

struct Options {
  AllReduce all_reduce = AllReduce::chosen;
  /// Pieces of a long message; what is on the wire can be combined while more arrives.
  Bytes chunk = 256 << 10;
  Bytes eager = 64 << 10;  ///< calls up to this size are sent without waiting for the peer's start
  Bytes window = 1 << 20;  ///< most bytes under way to a peer that has not said it takes them
  /// Where all_reduce may choose, it takes one round (gather) if a rank then sends at most this.
  Bytes gather = 32 << 10;
  std::string congestion;  ///< congestion control of the data connections; empty: chosen
};
Options parse_options(const Spec& spec);  ///< ConfigError

}  // namespace thinwire::tcp
