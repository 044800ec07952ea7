// SPDX-License-Identifier: Apache-2.0
// Powers of two, rounded by chance so that the expectation is the value.
// Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for Distributed Deep
// Learning" (2019).
// Update rule: for 2^e <= |x| < 2^(e+1), value = sign(x) 2^(e+1) with probability |x| / 2^e - 1,
// else sign(x) 2^e, from (seed, exchange, step, rank); then the mean over ranks. The variance is at
// most x^2 / 8.
// Bytes: a byte a value, its exponent, and a bit, its sign.
// Passes over memory: two to encode (exponents, signs), one to decode.
// Departs from the paper: nothing; values below 2^-126 become 0 or 2^-126, above 2^127 they stay
// there.
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_natural(PayloadRegistry& registry) {
  registry.add(
      "natural",
      [](const Spec&, std::span<const TensorDesc> tensors) {
        return value_count(tensors) + bytes_of_bits(value_count(tensors));
      },
      "a power of two for each value, rounded by chance: nine bits");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/natural.h"
#include "thinwire/codec/kernels/signs.h"

namespace thinwire {
namespace {

class Natural : public Codec {
 public:
  explicit Natural(std::int64_t count) : count_(count) {}

  CodecTraits traits() const override { return {.fixed_size = true, .unbiased = true}; }
  Bytes max_bytes() const override { return count_ + bytes_of_bits(count_); }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, max_bytes(), x);
    const RngKey key{
        .seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = slot.rank};
    kernels::encode_exponents(floats_of(x), key, section(out, 0, count_));
    kernels::pack_signs(floats_of(x), section(out, count_, bytes_of_bits(count_)));
    return {.parts = {out}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    decode_single(out, count_, mode, [&](Tensor& to, Write how) {
      const Tensor& bytes = checked_bytes("natural", payload, max_bytes());
      kernels::decode_exponents(section(bytes, 0, count_),
                                section(bytes, count_, bytes_of_bits(count_)), floats_in(to), how);
    });
  }

 private:
  std::int64_t count_;
  Tensor payload_;
};

}  // namespace

void register_natural(CodecRegistry& registry) {
  registry.add("natural", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader(spec).finish();
    return std::make_unique<Natural>(value_count(tensors));
  });
}

}  // namespace thinwire
#endif
