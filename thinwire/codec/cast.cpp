// SPDX-License-Identifier: Apache-2.0
// Half precision on the wire, single precision in sums.
// Update rule: payload = x rounded to nearest even; value = mean of payloads, summed in single
// precision, divided once and rounded to halves once where a sum travels.
// Bytes: 2 a value.
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_cast(PayloadRegistry& registry) {
  registry.add("cast", summed([](const Spec&, std::span<const TensorDesc> tensors) {
                 return 2 * value_count(tensors);
               }),
               "half precision on the wire {f16} or {bf16}");
}

}  // namespace thinwire
#else
#include <ATen/ops/add.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/half.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

constexpr std::size_t kCastPiece = 2048;  // floats that stay in the cache

/// to += by * from. Whole pieces have a length that the compiler knows, so that it uses vectors.
void add_cast_piece(float* __restrict to, const float* __restrict from, float by,
                    std::size_t count) {
  if (count == kCastPiece)
    for (std::size_t i = 0; i < kCastPiece; ++i) to[i] += by * from[i];
  else
    for (std::size_t i = 0; i < count; ++i) to[i] += by * from[i];
}

class Cast : public Codec {
 public:
  Cast(at::ScalarType type, at::ScalarType value, std::int64_t count)
      : type_(type), value_(value), count_(count) {}
  CodecTraits traits() const override {
    return {.summable = true, .fixed_size = true, .halves = true, .joins = true};
  }
  Bytes max_bytes() const override { return 2 * count_; }

  Payload encode(const Tensor& x, const Slot&) override {
    if (!halves_.defined()) halves_ = at::empty({count_}, x.options().dtype(type_));
    if (x.scalar_type() == at::kFloat)
      kernels::encode_half(format(), floats_of(x), words_of(halves_));
    else
      halves_.copy_(x);
    return {.parts = {halves_}};
  }

  /// One pass, by pieces that stay in the cache.
  Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) override {
    if (sum.scalar_type() != at::kFloat || !x.defined()) return Codec::encode_rest(sum, x, slot);
    if (!halves_.defined()) halves_ = at::empty({count_}, sum.options().dtype(type_));
    std::array<float, kCastPiece> decoded;
    const auto values = floats_in(sum);
    const auto added = floats_of(x);
    const auto words = words_of(halves_);
    for (std::size_t begin = 0; begin < values.size(); begin += decoded.size()) {
      const auto piece = values.subspan(begin, std::min(decoded.size(), values.size() - begin));
      add_cast_piece(piece.data(), added.data() + begin, 1, piece.size());
      const auto halves = words.subspan(begin, piece.size());
      kernels::encode_half(format(), piece, halves);
      kernels::decode_half(format(), halves, std::span(decoded).first(piece.size()), Write::set);
      add_cast_piece(piece.data(), decoded.data(), -1, piece.size());
    }
    return {.parts = {halves_}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor halves = checked(payload);
    if (!out.defined()) out = at::empty({count_}, halves.options().dtype(value_));
    if (out.scalar_type() == at::kFloat)
      kernels::decode_half(format(), words_of(halves), floats_in(out), mode);
    else
      mode == Write::set ? out.copy_(halves) : out.add_(halves);
  }

  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    const Tensor halves = checked(sent);
    if (x.scalar_type() != at::kFloat) {
      at::sub_out(out, x, halves);
      return;
    }
    // By pieces that stay in the cache: memory is passed once.
    std::array<float, kCastPiece> decoded;
    const auto from = floats_of(x);
    const auto to = floats_in(out);
    const auto words = words_of(halves);
    for (std::size_t begin = 0; begin < from.size(); begin += decoded.size()) {
      const std::size_t count = std::min(decoded.size(), from.size() - begin);
      kernels::decode_half(format(), words.subspan(begin, count), std::span(decoded).first(count),
                           Write::set);
      for (std::size_t i = 0; i < count; ++i) to[begin + i] = from[begin + i] - decoded[i];
    }
  }

 private:
  kernels::Half format() const {
    return type_ == at::kHalf ? kernels::Half::f16 : kernels::Half::bf16;
  }
  static std::span<std::uint16_t> words_of(const Tensor& halves) {
    return {static_cast<std::uint16_t*>(halves.data_ptr()),
            static_cast<std::size_t>(halves.numel())};
  }
  Tensor checked(const Payload& payload) const {
    if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != type_ ||
        payload.parts[0].numel() != count_ || !payload.parts[0].is_contiguous())
      throw DataError(fmt::format("cast: a payload must be {} halves in one part", count_));
    return payload.parts[0].view({-1});
  }

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
  registry.add("cast", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const auto type = half_type(reader);
    reader.finish();
    return std::make_unique<Cast>(type, value_bytes(tensors) == 8 ? at::kDouble : at::kFloat,
                                  value_count(tensors));
  });
}

}  // namespace thinwire
#endif
