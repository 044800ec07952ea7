// SPDX-License-Identifier: Apache-2.0
// Options of the tcp transport, equal on all ranks:
// "tcp{algorithm=shard,chunk=128KiB,eager=64KiB}".
#pragma once
#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"

namespace thinwire::tcp {

enum class AllReduce : std::uint8_t { chosen, shard, gather };

struct Options {
  AllReduce all_reduce = AllReduce::chosen;
  Bytes chunk =
      128
      << 10;  ///< pieces of a long message; what is on the wire can be combined while more arrives
  Bytes eager = 64 << 10;  ///< calls up to this size are sent without waiting for the peer's start
  Bytes window = 1 << 20;  ///< most bytes under way to a peer that has not said it takes them
  Bytes gather =
      32 << 10;  ///< all_reduce up to this size takes one round (gather) where it may choose
};
Options parse_options(const Spec& spec);  ///< ConfigError

}  // namespace thinwire::tcp
