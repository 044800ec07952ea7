// SPDX-License-Identifier: Apache-2.0
// Internal to exchange: one exchange of a plan with what it needs while it is under way, and the
// ways to carry it out. An algorithm is one source file and a line in the table of exchanger.cpp.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/codec/codec.h"
#include "thinwire/codec/memory.h"
#include "thinwire/comm/comm.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

struct Call;

struct Algorithm {
  std::string_view name;
  /// Why it cannot carry out this exchange; empty if it can. May make what it needs for it.
  std::string (*prepare)(Call& call);
  void (*start)(Call& call);
  void (*finish)(Call& call);  ///< waits; then call.data holds the combined value
  Bytes (*sent_bytes)(Bytes payload, int ranks);
};
extern const Algorithm kDirect, kGather, kShard;

struct Call {
  const Exchange* exchange = nullptr;
  Comm* group = nullptr;          ///< null: this rank is no member
  std::vector<TensorDesc> descs;  ///< the slices of the bucket
  std::unique_ptr<Codec> codec;
  std::vector<std::unique_ptr<Codec>> shard_codecs;  ///< shard: one a rank
  std::vector<std::unique_ptr<Memory>> memories;
  const Algorithm* algorithm = nullptr;

  bool in_flight = false, recorded = true;
  Tensor data;
  Slot slot;
  std::int32_t part = 0;  ///< of the next message
  std::vector<Handle> handles;
  std::vector<Payload> own;
  std::vector<Tensor> arrived;  ///< one a payload part
  Event event;

  MessageId next_message() { return {exchange->id, slot.step, part++}; }
};

Buffer buffer_of(const Tensor& tensor);
std::unique_ptr<Codec> make_codec(const Exchange& exchange, const std::vector<TensorDesc>& descs);
/// before() of all memories, then rounds of proposals until there is none.
void open_call(Call& call);
/// Tells the memories what has been sent. `own` is empty where there is none to tell.
void tell_sent(Call& call, const Tensor& own);
/// received() of all memories; then `value` stands in call.data.
void close_call(Call& call, Tensor& value);
/// Halves are summed in single precision and rounded once.
at::ScalarType sum_type(at::ScalarType type);

}  // namespace thinwire
