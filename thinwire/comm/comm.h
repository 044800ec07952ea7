// SPDX-License-Identifier: Apache-2.0
// The wire: collectives and messages over typed spans of memory. No torch. docs/comm.md says what
// each transport can.
//
// Rules for all transports
// - Collectives of one communicator start in the same order on every rank; the transport checks the
// k-th call of one
//   rank against the k-th of the others (id, kind, dtype, count, root) and a difference is a
//   CommError on all of them that gives both sides' numbers. Use split() for independent orders.
// - Calls return at once. The memory of `Buffer`s stays valid and untouched until the handle is
// done.
// - Sums run in rank order, ((r0 + r1) + r2) + ..., and `mean` divides once at the end, where
// caps().rank_order.
//   f16 and bf16 are summed in f32 and rounded once.
// - An element count of 0 is legal and sends nothing. With one rank every call is complete at once,
// without a copy
//   where input and output are the same memory.
// - After a CommError the communicator and all made from the same group are dead: every later call
// throws the same.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "thinwire/comm/handle.h"
#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"

namespace thinwire {

class Membership;

struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;  ///< elements
  DType dtype = DType::f32;
  int device = -1;  ///< -1: host
  Bytes bytes() const { return count * dtype_bytes(dtype); }
};

/// What errors and traces name. exchange -1: a call outside the plan.
struct MessageId {
  std::int32_t exchange = -1;
  std::int64_t step = 0;
  std::int32_t part = 0;
  bool operator==(const MessageId&) const = default;
};

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send,
  recv,
  barrier
};
std::string_view to_string(CallKind kind);
/// "all_reduce, exchange 3, step 10" (part only where it is not 0; "outside the plan" for exchange
/// -1).
std::string describe(CallKind kind, const MessageId& id);

struct CommCaps {
  std::string name;       ///< "tcp"
  bool recv_any = false;  ///< recv without a rank
  bool reduce_scatter = false;
  bool device_buffers = false;
  bool rank_order = false;  ///< sums run in rank order
  bool overlaps = false;    ///< calls progress while the caller computes
  std::vector<DType> sums;  ///< types that sum, mean, max and min take
};

/// What this rank has put on the wire here and over what was split from here; counted where sent.
struct CommCounters {
  std::int64_t calls = 0, messages = 0;
  Bytes payload_bytes = 0, header_bytes = 0;
};

class Comm {
 public:
  virtual ~Comm() = default;  ///< never waits
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual CommCaps caps() const = 0;
  virtual CommCounters counters() const = 0;
  /// Collective. Ranks with the same color form a group, ordered by (key, rank); color -1: nullptr.
  virtual std::unique_ptr<Comm> split(int color, int key) = 0;
  /// In place. op: sum, mean, max, min; bit_and, bit_or on integers.
  virtual Handle all_reduce(MessageId id, Buffer data, Combine op) = 0;
  /// `in` has size()*out.count elements; rank r gets part r. op as above.
  virtual Handle reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) = 0;
  /// `out` has size()*in.count elements, in rank order; in may be part rank() of out.
  virtual Handle all_gather(MessageId id, Buffer out, Buffer in) = 0;
  /// Counts are per rank, in elements, contiguous in rank order.
  virtual Handle all_to_all(MessageId id, Buffer out, Buffer in,
                            std::span<const std::int64_t> out_counts,
                            std::span<const std::int64_t> in_counts) = 0;
  virtual Handle broadcast(MessageId id, Buffer data, Rank root) = 0;
  /// Messages between two ranks are matched by id, in order for equal ids.
  virtual Handle send(MessageId id, Buffer data, Rank to) = 0;
  /// No rank given: from whoever sends this id first (caps().recv_any).
  virtual Handle recv(MessageId id, Buffer data, std::optional<Rank> from) = 0;
  /// Returns when all ranks have called it; at the deadline a CommError names the missing.
  /// Collective, blocking.
  virtual void barrier(const std::string& name) = 0;
  /// Who is alive, and the small control messages; shared by all communicators of one group. Never
  /// null.
  virtual const std::shared_ptr<Membership>& membership() const = 0;
};

struct JoinOptions;

/// Makes the world communicator from a transport spec such as "tcp", "tcp{algorithm=ring}",
/// "local", "c10d", "mpi", "none", with decorators in front: "record|tcp",
/// "throttle{rate=100mbit}|tcp", "fault{...}|local". Collective.
std::unique_ptr<Comm> make_comm(std::string_view transport, const JoinOptions& join);

using CommFactory = std::function<std::unique_ptr<Comm>(const Spec&, const JoinOptions&)>;
using DecoratorFactory =
    std::function<std::unique_ptr<Comm>(const Spec&, std::unique_ptr<Comm> inner)>;
const Registry<CommFactory>& transports();
const Registry<DecoratorFactory>& comm_decorators();

/// n communicators of one in-process group, one a thread. `timeout_s` is the group's deadline T.
/// `transport` ends in "local" or in "tcp" (real sockets on loopback).
std::vector<std::unique_ptr<Comm>> make_local(int ranks, Seconds timeout_s = 300,
                                              std::string_view transport = "local");

}  // namespace thinwire
