// SPDX-License-Identifier: Apache-2.0
// gather: everybody gets everybody's payload, and decodes and adds them in rank order.
// Bytes a rank sends: P (n-1).
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "thinwire/exchange/call.h"

namespace thinwire {
namespace {

std::string prepare(Call& call) {
  if (call.codec->traits().fixed_size) return {};
  return "payloads whose size depends on their values are not built in";
}

void start(Call& call) {
  open_call(call);
  call.own.resize(1);
  Payload& own = call.own[0];
  own = call.codec->encode(call.data, call.slot);
  if (!call.memories.empty()) {
    Tensor value = at::empty_like(call.data);
    call.codec->decode(own, value, Write::set);
    tell_sent(call, value);
  }
  call.arrived.clear();
  call.handles.clear();
  for (Tensor& sent : own.parts) {
    sent = sent.contiguous();
    std::vector<std::int64_t> shape(sent.sizes().begin(), sent.sizes().end());
    shape.insert(shape.begin(), call.group->size());
    call.arrived.push_back(at::empty(shape, sent.options()));
    call.handles.push_back(call.group->all_gather(call.next_message(),
                                                  buffer_of(call.arrived.back()), buffer_of(sent)));
  }
}

void finish(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  const int ranks = call.group->size();
  Tensor value =
      at::empty_like(call.data, call.data.options().dtype(sum_type(call.data.scalar_type())));
  for (int rank = 0; rank < ranks; ++rank) {
    Payload payload;
    for (const Tensor& all : call.arrived) payload.parts.push_back(all.select(0, rank));
    call.codec->decode(payload, value, rank == 0 ? Write::set : Write::add);
  }
  if (call.exchange->combine == Combine::mean) value.div_(ranks);
  close_call(call, value);
}

}  // namespace

const Algorithm kGather{"gather", prepare, start, finish,
                        [](Bytes payload, int ranks) { return payload * (ranks - 1); }};

}  // namespace thinwire
