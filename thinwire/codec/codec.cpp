// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/codec.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include "thinwire/codec/memory.h"

namespace thinwire {

#define TW_PLUGIN(name) void register_##name(CodecRegistry& registry);
#include "builtin_codec.inc"
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

void add_codec(std::string name, CodecFactory make, std::string help) {
  all_codecs().add(std::move(name), std::move(make), std::move(help));
}

const MemoryRegistry& memories() {
  static const MemoryRegistry registry("memory");
  return registry;
}

Bytes Payload::bytes() const {
  Bytes total = 0;
  for (const Tensor& part : parts) total += static_cast<Bytes>(part.nbytes());
  return total;
}

std::optional<Proposal> Codec::propose(const Tensor&, const Slot&) { return std::nullopt; }

Payload Codec::reduce(std::span<const Payload> payloads, const Slot& slot) {
  // A codec sees flat buckets, so the shape of the sum is that of the first decoded value.
  Tensor sum;
  for (const Payload& payload : payloads)
    decode(payload, sum, sum.defined() ? Write::add : Write::set);
  return encode(sum, slot);
}

void Codec::commit(Payload&) {}

void Codec::residual(const Tensor& x, const Payload& sent, Tensor& out) const {
  Tensor value = at::empty_like(x);
  decode(sent, value, Write::set);
  at::sub_out(out, x, value);
}

void Codec::visit_state(StateVisitor&) {}
void Memory::received(Tensor&, Rank, const Slot&) {}

}  // namespace thinwire
