// SPDX-License-Identifier: Apache-2.0
// No compression: the dense control of every comparison.
// Update rule: payload = x; value = payload.
// Bytes: those of x, in one part; the exchanger sends x itself, in place and without a copy.
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_none(PayloadRegistry& registry) {
  registry.add("none", summed([](const Spec&, std::span<const TensorDesc> tensors) {
                 Bytes bytes = 0;
                 for (const TensorDesc& tensor : tensors) bytes += dense_bytes(tensor);
                 return bytes;
               }),
               "the values as they are, without a copy");
}

}  // namespace thinwire
#else
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/sub.h>

#include "thinwire/codec/codec.h"
#include "thinwire/codec/torch_dtype.h"

namespace thinwire {
namespace {

class None : public Codec {
 public:
  None(Bytes bytes, at::ScalarType type) : bytes_(bytes), type_(type) {}
  CodecTraits traits() const override {
    return {
        .summable = true, .fixed_size = true, .unbiased = true, .identity = true, .contraction = 1};
  }
  Bytes max_bytes() const override { return bytes_; }
  /// Behind a memory halves come in single precision; they travel as halves all the same.
  Payload encode(const Tensor& x, const Slot&) override {
    const bool widened =
        x.scalar_type() == at::kFloat && (type_ == at::kHalf || type_ == at::kBFloat16);
    return {.parts = {widened ? x.to(type_) : x}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor& x = payload.parts.at(0);
    if (!out.defined())
      out = x.clone();
    else if (mode == Write::set)
      out.copy_(x);
    else
      out.add_(x);
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (sent.parts.at(0).scalar_type() == x.scalar_type())
      out.zero_();
    else
      at::sub_out(out, x, sent.parts[0].to(x.scalar_type()));
  }

 private:
  Bytes bytes_;
  at::ScalarType type_;
};

}  // namespace

void register_none(CodecRegistry& registry) {
  registry.add("none", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader(spec).finish();
    const auto type = tensors.empty() ? at::kFloat : scalar_type_of(tensors[0].dtype);
    return std::make_unique<None>(*payload_bytes(std::span(&spec, 1), tensors), type);
  });
}

}  // namespace thinwire
#endif
