// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/call.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

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

Tensor flat_of(const Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor.view({-1});
  if (tensor.is_non_overlapping_and_dense()) return tensor.as_strided({tensor.numel()}, {1});
  return tensor.reshape({-1});
}

bool keeps_tensors(Codec& codec) {
  struct AnyTensor : StateVisitor {
    void tensor(const std::string&, Tensor&) override { any = true; }
    void integer(const std::string&, std::int64_t&) override {}
    void elements(const std::string&, Tensor&) override { any = true; }
    bool any = false;
  } state;
  codec.visit_state(state);
  return state.any;
}

void make_room(Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!kept.defined() || kept.sizes() != shape || kept.dtype() != options.dtype())
    kept = at::empty(shape, options);
}

namespace {

/// Whether a memory leaves in call.x what has not been sent.
bool rest_is_kept(const Call& call) {
  return !call.memories.empty() && call.memories.back()->keeps_rest();
}

}  // namespace

void open_call(Call& call) {
  const at::ScalarType type = call.data.scalar_type(), wide = sum_type(type);
  const auto options = call.data.options().dtype(wide);
  call.x = call.data;
  call.lent = nullptr;
  call.value = call.data;
  if (type != wide) {
    make_room(call.sums, call.data.sizes(), options);
    call.value = call.sums;
    // A form that is the input itself travels as it is.
    if (!call.codec->traits().identity || !call.memories.empty()) {
      make_room(call.wide, call.data.sizes(), options);
      call.wide.copy_(call.data);
      call.x = call.wide;
    }
  }
  call.told = false;
  if (!call.slot.counts) {
    call.x = at::zeros(call.data.sizes(), options);
    return;
  }
  call.kept_x.resize(call.memories.size());
  for (std::size_t i = 0; i < call.memories.size(); ++i) {
    if (i + 1 == call.memories.size() && call.slot.fires && call.codec->traits().joins &&
        call.x.scalar_type() == at::kFloat)
      call.lent = call.memories[i]->lend(call.x, call.slot);
    if (call.lent == nullptr) call.memories[i]->before(call.x, call.slot);
    call.kept_x[i] = call.x;
  }
  // Rounds leave in x what they have not sent; without a memory that would be the caller's.
  if (!rest_is_kept(call) && call.codec->traits().rounds > 1) call.x = call.x.clone();
}

void keep_all(Call& call) {
  call.value = call.data;
  Tensor* sum = nullptr;
  if (call.memories.size() == 1 && call.slot.counts && call.data.scalar_type() == at::kFloat)
    sum = call.memories[0]->lend(call.data, call.slot);
  if (sum != nullptr) {
    constexpr std::int64_t kPiece = 1 << 16;  // values that are in a cache when they are cleared
    for (std::int64_t begin = 0; begin < sum->numel(); begin += kPiece) {
      const std::int64_t count = std::min(kPiece, sum->numel() - begin);
      Tensor piece = call.data.narrow(0, begin, count);
      sum->narrow(0, begin, count).add_(piece);
      piece.zero_();
    }
  } else {
    if (!call.memories.empty()) open_call(call);
    if (call.slot.counts)
      for (std::size_t i = call.memories.size(); i-- > 0;)
        call.memories[i]->sent(call.kept_x[i], Sent(), call.slot);
    call.value.zero_();
  }
  close_call(call);
}

bool propose(Call& call) {
  call.proposal = call.codec->propose(call.x, call.slot);
  call.more = call.proposal.has_value();
  if (!call.more) return false;
  call.payload += static_cast<Bytes>(call.proposal->value.nbytes());
  call.handles.assign(1,
                      call.group->all_reduce(call.next_message(), buffer_of(call.proposal->value),
                                             call.proposal->op));
  return true;
}

Payload encode(Call& call, Codec& codec, std::int64_t begin, std::int64_t count) {
  const auto part = [&](const Tensor& whole) {
    return count == whole.numel() ? whole : whole.narrow(0, begin, count);
  };
  if (call.lent == nullptr) return codec.encode(part(call.x), call.slot);
  Tensor sum = part(*call.lent);
  return codec.encode_rest(sum, call.slot.round == 0 ? part(call.x) : Tensor(), call.slot);
}

void tell_sent(Call& call, const Sent& sent) {
  call.told = true;
  if (call.slot.counts)
    for (std::size_t i = call.memories.size() - (call.lent == nullptr ? 0 : 1); i-- > 0;)
      call.memories[i]->sent(call.kept_x[i], sent, call.slot);
  const bool left_by_memory = call.slot.counts && rest_is_kept(call);
  if (call.slot.round + 1 < call.codec->traits().rounds && !left_by_memory)
    sent.residual(call.x, call.x);
}

void take_back(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  call.more = false;
  call.proposal.reset();
  if (!call.slot.counts) return;
  if (!call.told) {  // ranks were still to agree, or nothing is told before it has arrived
    tell_sent(call, Sent());
    call.own.clear();
  }
  const auto options = call.data.options().dtype(sum_type(call.data.scalar_type()));
  const Tensor own = at::zeros(call.data.sizes(), options);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < call.own.size(); ++i) {
    const bool cut = !call.shard_codecs.empty();
    const auto next =
        own.numel() * static_cast<std::int64_t>(i + 1) / static_cast<std::int64_t>(call.own.size());
    Tensor part = cut ? own.narrow(0, begin, next - begin) : own;
    (cut ? call.shard_codecs[i] : call.codec)->decode(call.own[i], part, Write::add);
    begin = next;
  }
  const Tensor produced = call.data.to(options.dtype().toScalarType());
  for (std::size_t i = call.memories.size(); i-- > 0;)
    call.memories[i]->take_back(i == 0 ? produced : call.kept_x[i - 1], own, call.slot);
}

void close_call(Call& call) {
  for (auto memory = call.memories.rbegin(); memory != call.memories.rend(); ++memory)
    (*memory)->received(call.value, kCombined, call.slot);
  // The caller's memory is filled, never replaced: a decode may hand back memory of its own.
  if (!call.value.is_same(call.data)) call.data.copy_(call.value.view_as(call.data));
}

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

}  // namespace thinwire
