// SPDX-License-Identifier: Apache-2.0
// direct: the transport's own all-reduce, of payloads that it may add: `none` in the caller's
// memory, halves that it sums in single precision, factors. Codecs with several rounds start the
// next one when the exchange is waited for.
// Bytes a rank sends: 2 P (n-1)/n (docs/costs.md has the transports' own).
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>

#include "thinwire/exchange/call.h"

namespace thinwire {
namespace direct_stages {
namespace {

std::string prepare(Call& call) {
  const CodecTraits traits = call.codec->traits();
  if (call.memories.empty() && traits.identity) return {};
  if (!traits.summable)
    return "it adds payloads in the transport, and those of this form do not add";
  if (!traits.merges && !traits.identity && call.group && !call.group->caps().rank_order)
    return "this transport does not add in rank order";
  return {};
}

/// Integers have no mean: a codec's are added, and it divides what it decodes.
bool adds_integers(const Call& call, const Tensor& part) {
  return !call.codec->traits().identity && at::isIntegralType(part.scalar_type(), false);
}

void send(Call& call, const Tensor& sent) {
  call.payload += static_cast<Bytes>(sent.nbytes());
  const bool mean = call.exchange->combine == Combine::mean;
  const Combine op = mean && adds_integers(call, sent) ? Combine::sum : call.exchange->combine;
  if (sent.numel() > 0)
    call.handles.push_back(call.group->all_reduce(call.next_message(), buffer_of(sent), op));
}

/// The transport writes its sums over what it is given, so memories are told before.
void send_round(Call& call) {
  call.merged = encode(call, *call.codec, 0, call.x.numel());
  tell_sent(call, Sent({{call.codec.get(), &call.merged, 0, call.x.numel()}}));
  if (call.slot.round == 0 && !call.memories.empty()) {
    call.own.assign(1, {});
    for (const Tensor& part : call.merged.parts) call.own[0].parts.push_back(part.clone());
  }
  call.handles.clear();
  for (const Tensor& part : call.merged.parts) send(call, part);
  call.more = call.slot.round + 1 < call.codec->traits().rounds;
}

/// What memories hold goes out as a copy; they are told in the end.
void send_copy(Call& call) {
  call.merged = call.codec->encode(call.x, call.slot);
  const Tensor& sent = call.merged.parts[0];
  make_room(call.room, sent.sizes(), sent.options());
  call.room.copy_(sent);
  call.own.clear();
  call.handles.clear();
  send(call, call.room);
}

void start(Call& call) {
  if (call.in_place()) {
    call.handles.clear();
    return send(call, call.data);
  }
  call.codec->traits().identity ? send_copy(call) : send_round(call);
}

void merge(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  call.codec->commit(call.merged);
  call.codec->decode(call.merged, call.value, call.slot.round == 0 ? Write::set : Write::add);
  if (!call.merged.parts.empty() && adds_integers(call, call.merged.parts[0]))
    call.codec->conclude(call.value, call.divisor());
}

void advance(Call& call) {
  merge(call);
  ++call.slot.round;
  send_round(call);
}

void finish(Call& call) {
  if (!call.codec->traits().identity) return merge(call);
  for (Handle& handle : call.handles) handle.wait();
  call.handles.assign(1, {});
  if (call.in_place()) return;
  tell_sent(call, Sent({{call.codec.get(), &call.merged, 0, call.x.numel()}}));
  call.value = call.room;
}

}  // namespace
}  // namespace direct_stages

const Algorithm kDirect{"direct",
                        direct_stages::prepare,
                        direct_stages::start,
                        direct_stages::advance,
                        direct_stages::finish,
                        [](const Call& call) {
                          const int ranks = call.group->size();
                          return 2 * call.payload * (ranks - 1) / ranks;
                        }};

}  // namespace thinwire
