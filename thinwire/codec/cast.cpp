// SPDX-License-Identifier: Apache-2.0
// Half precision on the wire, single precision in sums.
// Update rule: payload = x rounded to nearest even; value = mean of payloads, summed in single
// precision, divided once and rounded to halves once where a sum travels.
// Bytes: 2 a value.
#include <ATen/ops/add.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <fmt/format.h>

#include "thinwire/codec/codec.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class Cast : public Codec {
 public:
  Cast(at::ScalarType type, at::ScalarType value, std::int64_t count)
      : type_(type), value_(value), count_(count) {}
  CodecTraits traits() const override { return {.summable = true, .fixed_size = true}; }
  Bytes max_bytes() const override { return 2 * count_; }

  Payload encode(const Tensor& x, const Slot&) override {
    if (!halves_.defined()) halves_ = at::empty({count_}, x.options().dtype(type_));
    halves_.copy_(x);
    return {.parts = {halves_}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != type_ ||
        payload.parts[0].numel() != count_)
      throw DataError(fmt::format("cast: a payload must be {} halves in one part", count_));
    const Tensor halves = payload.parts[0].view({-1});
    if (!out.defined())
      out = halves.to(value_);
    else if (mode == Write::set)
      out.copy_(halves);
    else
      out.add_(halves);
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    at::sub_out(out, x, sent.parts.at(0));
  }

 private:
  at::ScalarType type_, value_;
  std::int64_t count_;
  Tensor halves_;
};

at::ScalarType half_type(SpecReader& reader) {
  const auto& inner = reader.inner();
  const std::string name = inner.size() == 1 ? inner[0].name : "";
  if (name == "f16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  throw ConfigError("cast: write cast{f16} or cast{bf16}");
}

}  // namespace

void register_cast(CodecRegistry& registry) {
  registry.add(
      "cast",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const auto type = half_type(reader);
        reader.finish();
        return std::make_unique<Cast>(type, value_bytes(tensors) == 8 ? at::kDouble : at::kFloat,
                                      value_count(tensors));
      },
      "half precision on the wire {f16} or {bf16}");
}

}  // namespace thinwire
