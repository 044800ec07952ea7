// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/call.h"

#include <ATen/ops/copy.h>
#include <fmt/format.h>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"

namespace thinwire {

Buffer buffer_of(const Tensor& tensor) {
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype)
    throw UnsupportedError(
        fmt::format("no message carries elements of type {}", c10::toString(tensor.scalar_type())));
  return {tensor.data_ptr(), tensor.numel(), *dtype, -1};
}

std::unique_ptr<Codec> make_codec(const Exchange& exchange, const std::vector<TensorDesc>& descs) {
  const Spec none{.name = "none"};
  const Spec& spec = exchange.form.empty() ? none : exchange.form.back();
  return codecs().find(spec.name).make(spec, descs);
}

void open_call(Call& call) {
  for (auto& memory : call.memories) memory->before(call.data, call.slot);
  while (auto proposal = call.codec->propose(call.data, call.slot)) {
    call.group->all_reduce(call.next_message(), buffer_of(proposal->value), proposal->op).wait();
    call.slot.agreed.push_back(proposal->value);
  }
}

void tell_sent(Call& call, const Tensor& own) {
  for (auto memory = call.memories.rbegin(); memory != call.memories.rend(); ++memory)
    (*memory)->sent(call.data, own, call.slot);
}

void close_call(Call& call, Tensor& value) {
  for (auto memory = call.memories.rbegin(); memory != call.memories.rend(); ++memory)
    (*memory)->received(value, kCombined, call.slot);
  // The caller's memory is filled, never replaced: a decode may hand back memory of its own.
  call.data.copy_(value.view_as(call.data));
}

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

}  // namespace thinwire
