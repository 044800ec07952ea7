// SPDX-License-Identifier: Apache-2.0
// No compression: the dense control of every comparison.
// Update rule: payload = x; value = payload.
// Bytes: those of x, in one part; the exchanger sends x itself, in place and without a copy.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>

#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

class None : public Codec {
 public:
  explicit None(Bytes bytes) : bytes_(bytes) {}
  CodecTraits traits() const override {
    return {
        .summable = true, .fixed_size = true, .unbiased = true, .identity = true, .contraction = 1};
  }
  Bytes max_bytes() const override { return bytes_; }
  Payload encode(const Tensor& x, const Slot&) override { return {.parts = {x}}; }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor& x = payload.parts.at(0);
    if (!out.defined())
      out = x.clone();
    else if (mode == Write::set)
      out.copy_(x);
    else
      out.add_(x);
  }

 private:
  Bytes bytes_;
};

}  // namespace

void register_none(CodecRegistry& registry) {
  registry.add(
      "none",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader(spec).finish();
        Bytes bytes = 0;
        for (const auto& tensor : tensors) bytes += dense_bytes(tensor);
        return std::make_unique<None>(bytes);
      },
      "the values as they are, without a copy");
}

}  // namespace thinwire
