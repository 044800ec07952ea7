// SPDX-License-Identifier: Apache-2.0
// The five decisions of a plan, as plain values: grouping, shard map, halo map, topology, schedule.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {

/// Elements [begin, end) of tensor `tensor`, flattened.
struct Slice {
  int tensor = 0;
  std::int64_t begin = 0, end = 0;
  bool operator==(const Slice&) const = default;
};
/// The slices that travel together, in message order.
struct Bucket {
  std::vector<Slice> slices;
  bool operator==(const Bucket&) const = default;
};
/// Tensors -> messages; bucket 0 is started first. Every element stands in exactly one bucket.
using Grouping = std::vector<Bucket>;

struct ShardMap {
  std::vector<std::int32_t> owner;  ///< item -> rank that owns it
  bool operator==(const ShardMap&) const = default;
};

struct HaloRow {
  std::int64_t row = 0, item = 0;
  float weight = 1;  ///< 1 copies; other weights pre-aggregate
  bool operator==(const HaloRow&) const = default;
};
struct HaloMap {
  std::vector<std::vector<HaloRow>> send;       ///< per peer
  std::vector<std::vector<std::int64_t>> recv;  ///< per peer
  bool operator==(const HaloMap&) const = default;
};

using Mixing = std::vector<std::pair<Rank, double>>;  ///< in-neighbours and weights, self included
struct Topology {
  std::function<Mixing(Rank, std::int64_t step)> mixing;
};

enum class OpKind : std::uint8_t { forward, backward, update, exchange };
std::string_view to_string(OpKind kind);
struct Op {
  OpKind kind = OpKind::forward;
  int index = 0;
  int microbatch = 0;
  std::vector<int> after;  ///< indices into the same rank's list
  bool operator==(const Op&) const = default;
};
using Schedule = std::vector<std::vector<Op>>;  ///< per rank, in order

}  // namespace thinwire
