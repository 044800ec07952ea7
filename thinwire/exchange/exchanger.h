// SPDX-License-Identifier: Apache-2.0
// Carries out planned exchanges: codec x transport x combine, in plan order.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/codec/codec.h"
#include "thinwire/codec/memory.h"
#include "thinwire/comm/comm.h"
#include "thinwire/exchange/form_state.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

/// Collects trace events of one rank; a ring of fixed size, so that recording allocates nothing in
/// a step.
class Recorder {
 public:
  explicit Recorder(Rank rank, std::int64_t capacity = 1 << 16);
  Seconds now() const;  ///< since the recorder was made
  void add(const Event& event);
  Trace trace() const;  ///< oldest first
 private:
  Rank rank_;
  Deadline origin_;
  std::vector<Event> ring_;
  std::int64_t count_ = 0;
};

class Exchanger {
 public:
  /// `world` and `recorder` outlive the exchanger. Collective: validates the plan, compares its
  /// digest on all ranks (ConfigError with both digests and the first exchange that differs),
  /// splits one communicator a plan group.
  Exchanger(Comm& world, const Plan& plan, Recorder& recorder);
  ~Exchanger();
  /// Starts exchange `exchange_id` on `data` (host, dense: any order of elements that
  /// all ranks share), in place: when wait() returns,
  /// data holds the combined value. Exchanges of a step start in one order on all ranks. An
  /// identity form without memories is sent in place. In a step in which the exchange does not fire
  /// nothing is sent, memories take up what there is, and the value is zero.
  void start(int exchange_id, Tensor& data, const Slot& slot);
  /// Waits for the exchange started last under this id and adds its event to the recorder.
  /// CommErrors name the bucket and its first tensor as well. Nothing in flight: returns at once.
  void wait(int exchange_id);
  /// Records the events of exchanges that have ended meanwhile; never waits.
  void poll();
  /// Whether the exchange sends and receives in the caller's memory: an identity form, no memories.
  bool in_place(int exchange_id) const;
  /// What this rank's memories and codecs keep; copies. Nothing is under way then.
  FormState state() const;
  /// Takes up what it knows of; DataError where an entry is malformed.
  void load_state(const FormState& state);
  /// Ends exchanges under way that do not count: undoes what memories have done with them, and
  /// leaves the caller's memory as it is where it has memories. Collective, as wait().
  void take_back(int exchange_id);
  /// Whether a memory of the exchange has something to lose by values that are not finite.
  bool has_memories(int exchange_id) const;
  const Plan& plan() const;
  std::uint64_t plan_digest() const;
  /// This rank's communicator of a plan group; ConfigError if it does not belong to it.
  Comm& group(int index);
  /// "exchange 3 (bucket 2, first tensor 'fc1.weight')", for errors.
  std::string describe_exchange(int exchange_id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thinwire
