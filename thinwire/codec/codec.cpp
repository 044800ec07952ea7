// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/codec.h"

#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sub.h>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {

#define TW_PLUGIN(name) void register_##name(CodecRegistry& registry);
#include "builtin_codec.inc"
#undef TW_PLUGIN
#define TW_PLUGIN(name) void register_##name(MemoryRegistry& registry);
#include "builtin_codec_memory.inc"
#undef TW_PLUGIN

namespace {

CodecRegistry& all_codecs() {
  static CodecRegistry registry = [] {
    CodecRegistry out("codec");
#define TW_PLUGIN(name) register_##name(out);
#include "builtin_codec.inc"
#undef TW_PLUGIN
    return out;
  }();
  return registry;
}

}  // namespace

const CodecRegistry& codecs() { return all_codecs(); }

void add_codec(const std::string& name, CodecFactory make, std::string help, PayloadFn payload) {
  if (!payload) payload = [](const Spec&, std::span<const TensorDesc>) { return std::nullopt; };
  all_codecs().add(name, std::move(make));
  add_payload(name, std::move(payload), std::move(help));
}

const MemoryRegistry& memories() {
  static const MemoryRegistry registry = [] {
    MemoryRegistry out("memory");
#define TW_PLUGIN(name) register_##name(out);
#include "builtin_codec_memory.inc"
#undef TW_PLUGIN
    return out;
  }();
  return registry;
}

void check_form(const std::string& text) {
  std::vector<Spec> chain = parse_chain(text);
  codecs().find(chain.back().name).make(chain.back(), {});
  chain.pop_back();
  for (const Spec& memory : chain) memories().find(memory.name).make(memory, {});
}

Bytes Payload::bytes() const {
  Bytes total = 0;
  for (const Tensor& part : parts) total += static_cast<Bytes>(part.nbytes());
  return total;
}

Payload Codec::encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) {
  if (x.defined()) sum.add_(x);
  Payload out = encode(sum, slot);
  if (traits().identity)
    for (Tensor& part : out.parts) part = part.clone();  // it is the sum, which changes
  residual(sum, out, sum);
  return out;
}

std::optional<Proposal> Codec::propose(const Tensor&, const Slot&) { return std::nullopt; }

Payload Codec::reduce(std::span<const Payload> payloads, int divisor, const Slot& slot) {
  Tensor sum;
  for (const Payload& payload : payloads)
    decode(payload, sum, sum.defined() ? Write::add : Write::set);
  conclude(sum, divisor);
  return encode(sum, slot);
}

void Codec::combine(std::span<const Payload> payloads, int divisor, Tensor& out) {
  for (std::size_t i = 0; i < payloads.size(); ++i)
    decode(payloads[i], out, i == 0 ? Write::set : Write::add);
  conclude(out, divisor);
}

void Codec::conclude(Tensor& sum, int divisor) const {
  if (divisor != 1) sum.div_(divisor);
}

void Codec::commit(Payload&) {}

void Codec::residual(const Tensor& x, const Payload& sent, Tensor& out) const {
  Tensor value = at::empty_like(x);
  decode(sent, value, Write::set);
  at::sub_out(out, x, value);
}

void Codec::forget(const Payload& sent, Tensor& x) const {
  Tensor value = at::empty_like(x);
  decode(sent, value, Write::set);
  x.masked_fill_(value.ne(0), 0);
}

void Codec::visit_state(StateVisitor&) {}

void StateVisitor::shared_elements(const std::string& name, Tensor& value) {
  elements(name, value);
}
void StateVisitor::own(const std::string& name, Tensor& value) { tensor(name, value); }

void Sent::residual(const Tensor& x, Tensor& out) const {
  if (nothing() && !out.is_same(x)) out.copy_(x);
  for (const Part& part : parts_) {
    const bool whole = part.count == x.numel();
    const Tensor from = whole ? x : x.narrow(0, part.begin, part.count);
    Tensor to = whole ? out : out.narrow(0, part.begin, part.count);
    part.codec->residual(from, *part.payload, to);
  }
}

void Sent::forget(Tensor& x) const {
  for (const Part& part : parts_) {
    Tensor place = part.count == x.numel() ? x : x.narrow(0, part.begin, part.count);
    part.codec->forget(*part.payload, place);
  }
}

Tensor* Memory::lend(const Tensor&, const Slot&) { return nullptr; }

void Memory::received(Tensor&, Rank, const Slot&) {}

void Memory::take_back(const Tensor&, const Tensor&, const Slot&) {
  throw UnsupportedError("a memory of this form cannot take back a step that does not count");
}

}  // namespace thinwire
