// SPDX-License-Identifier: Apache-2.0
// Internal to exchange: one exchange of a plan with what it needs while it is under way, and the
// ways to carry it out. An algorithm is one source file and a line in the table of exchanger.cpp.
#pragma once
#include <memory>
#include <numeric>
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
  /// Sends the first messages for call.x; sets call.more if advance() has to follow.
  void (*start)(Call& call);
  /// Waits for the messages before and sends the next ones; null: there are none.
  void (*advance)(Call& call);
  /// Waits; then call.value holds the combined value, for call.data.
  void (*finish)(Call& call);
  /// Of this rank, after finish().
  Bytes (*sent_bytes)(const Call& call);
};
extern const Algorithm kDirect, kGather, kShard, kTree, kHierarchical;

/// The ranks of a group by host.
struct Hosts {
  std::unique_ptr<Comm> inside;   ///< of this rank's host
  std::unique_ptr<Comm> between;  ///< of the first ranks of all hosts; null on others
  std::vector<int> sizes;         ///< ranks of each host
  std::vector<int> row_of;        ///< place of each rank where those of a host stand side by side
  int host = 0;                   ///< this rank's
  int count() const { return static_cast<int>(sizes.size()); }
  int begin(int of) const { return std::accumulate(sizes.begin(), sizes.begin() + of, 0); }
  int all() const { return begin(count()); }
};
/// `names`: of the hosts, by rank of the world. Null where this rank is no member. Collective in
/// the group.
std::unique_ptr<Hosts> make_hosts(Comm* group, const Group& planned,
                                  const std::vector<std::string>& names);

struct Call {
  const Exchange* exchange = nullptr;
  Comm* group = nullptr;          ///< null: this rank is no member
  const Hosts* hosts = nullptr;   ///< of the group, where the plan names hierarchical
  std::vector<TensorDesc> descs;  ///< the slices of the bucket
  std::unique_ptr<Codec> codec;
  std::vector<std::unique_ptr<Codec>> shard_codecs;  ///< shard: one a rank
  std::vector<std::unique_ptr<Memory>> memories;
  const Algorithm* algorithm = nullptr;

  bool in_flight = false, recorded = true;
  bool more = false;       ///< a stage is left that advance() begins
  bool told = false;       ///< memories know what has been sent
  bool off = false;        ///< under way, but nothing is sent in this step
  Tensor data;             ///< the caller's, flat where dense
  Tensor x;                ///< what is encoded: the caller's memory, or a memory's
  Tensor* lent = nullptr;  ///< of the last memory: x is still to be added to it
  Tensor value;            ///< what comes out; the caller's memory where its type is that of sums
  Slot slot;
  Bytes payload = 0;
  Bytes sent = 0;         ///< counted by tree and hierarchical, whose ranks send unequal shares
  int stage = 0;          ///< of theirs
  std::int32_t part = 0;  ///< of the next message
  std::vector<Handle> handles;
  std::optional<Proposal> proposal;  ///< under way
  std::vector<Payload> own;          ///< as encoded, of the first round
  Payload merged;
  std::vector<Tensor> arrived;  ///< one a payload part
  std::vector<std::int64_t> lengths;
  Event event;

  // Kept from step to step.
  Tensor room;                 ///< direct: what memories hold, on its way
  Tensor wide, sums;           ///< halves in single precision; their sums
  std::vector<Tensor> kept_x;  ///< what each memory has made of x

  /// Sent and received in the caller's memory.
  bool in_place() const {
    return algorithm == &kDirect && memories.empty() && codec->traits().identity;
  }
  int divisor() const { return exchange->combine == Combine::mean ? group->size() : 1; }
  MessageId next_message() { return {exchange->id, slot.step, part++}; }
};

Buffer buffer_of(const Tensor& tensor);
std::unique_ptr<Codec> make_codec(const Exchange& exchange, const std::vector<TensorDesc>& descs);
/// The elements in the order in which they lie in memory; of a tensor with gaps, of a copy.
Tensor flat_of(const Tensor& tensor);
/// before() of all memories; call.x and call.value are ready then.
void open_call(Call& call);
/// A step in which the exchange does not fire: memories take up what has been produced, and what
/// comes out, in call.data, is nothing.
void keep_all(Call& call);
/// Starts the next round of proposals; false if there is none. Then a stage is left.
bool propose(Call& call);
/// The payload of `count` values from `begin` on, of this codec.
Payload encode(Call& call, Codec& codec, std::int64_t begin, std::int64_t count);
/// Tells the memories what has been sent; call.x is what stays behind then, where a round follows.
void tell_sent(Call& call, const Sent& sent);
/// Whether a codec keeps tensors between steps, which must be the same on all ranks; a number is
/// the same in all parts of a bucket.
bool keeps_tensors(Codec& codec);
/// Makes `kept` a tensor of this shape and type; keeps it if it is one.
void make_room(Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options);
/// received() of all memories; then the value stands in call.data.
void close_call(Call& call);
/// Waits for the first messages, sends no others, and undoes what memories have done.
void take_back(Call& call);
/// Halves are summed in single precision and rounded once.
at::ScalarType sum_type(at::ScalarType type);

}  // namespace thinwire
