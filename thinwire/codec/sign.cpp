// SPDX-License-Identifier: Apache-2.0
// One bit a value: its sign.
// Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for Non-Convex
// Problems" (2018), with the majority vote; Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback
// Fixes SignSGD" (2019), with the scale.
// Update rule, sign(0) = +1:
//   scale=mean: payload = sign(x) and s = mean |x| of each tensor; value = mean of s sign(x)
//   scale=vote: payload = sign(x); value = sign of the sum over ranks, a tie is +1
// Bytes: 1 bit a value, and 4 a tensor with scale=mean.
// Departs from the papers: nothing in the rules; the vote is counted by everybody, without a
// server.
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_sign(PayloadRegistry& registry) {
  registry.add(
      "sign",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const Bytes scale = reader.text("scale", "mean") == "vote" ? 0 : 4;
        Bytes bytes = bytes_of_bits(value_count(tensors));
        for (const TensorDesc& tensor : tensors) bytes += value_count(tensor) > 0 ? scale : 0;
        return bytes;
      },
      "one bit a value, and the mean magnitude of each tensor {scale=mean, or vote: the majority}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/codec/single_codec.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class Sign : public SingleCodec {
 public:
  Sign(std::span<const TensorDesc> tensors, bool vote) : vote_(vote) {
    for (const TensorDesc& tensor : tensors)
      if (value_count(tensor) > 0) counts_.push_back(value_count(tensor));
    for (const std::int64_t count : counts_) total_ += count;
    if (vote) counts_.clear();
    scale_bytes_ = 4 * static_cast<Bytes>(counts_.size());
  }

  CodecTraits traits() const override {
    return {.fixed_size = true, .closed = vote_, .joins = !vote_};
  }
  Bytes max_bytes() const override { return scale_bytes_ + bytes_of_bits(total_); }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, max_bytes(), x);
    kernels::pack_signs(floats_of(x), section(out, scale_bytes_, bytes_of_bits(total_)));
    std::int64_t begin = 0, tensor = 0;
    for (const std::int64_t count : counts_) {
      const auto part =
          floats_of(x).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
      const auto scale = static_cast<float>(kernels::sum_abs(part) / static_cast<double>(count));
      std::memcpy(section(out, 4 * tensor++, 4).data(), &scale, 4);
      begin += count;
    }
    return {.parts = {out}};
  }

  /// Two passes: a scale is known after the first one over its tensor.
  Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) override {
    if (vote_ || sum.scalar_type() != at::kFloat || !x.defined())
      return Codec::encode_rest(sum, x, slot);
    Tensor& out = byte_room(payload_, max_bytes(), sum);
    const auto bits = section(out, scale_bytes_, bytes_of_bits(total_));
    if (!bits.empty()) bits.back() = 0;
    std::size_t begin = 0, tensor = 0;
    for (const std::int64_t count : counts_) {
      const auto part = floats_in(sum).subspan(begin, static_cast<std::size_t>(count));
      const double all =
          kernels::accumulate_sum_abs(part, floats_of(x).subspan(begin, part.size()));
      const auto scale = static_cast<float>(all / static_cast<double>(count));
      std::memcpy(section(out, 4 * static_cast<Bytes>(tensor++), 4).data(), &scale, 4);
      pack_rest(floats_in(sum), begin, begin + part.size(), scale, bits);
      begin += part.size();
    }
    return {.parts = {out}};
  }

  void conclude(Tensor& sum, int divisor) const override {
    if (!vote_) return Codec::conclude(sum, divisor);
    sum.copy_(sum.ge(0)).mul_(2).sub_(1);
  }

 private:
  /// The signs of values [begin, end), and what they leave.
  void pack_rest(std::span<float> values, std::size_t begin, std::size_t end, float scale,
                 std::span<std::uint8_t> bits) const {
    const auto one = [&](std::size_t i) {
      const bool negative = values[i] < 0;
      const auto bit = static_cast<std::uint8_t>(1U << (i % 8));
      bits[i / 8] = static_cast<std::uint8_t>(negative ? bits[i / 8] | bit : bits[i / 8] & ~bit);
      values[i] -= negative ? -scale : scale;
    };
    std::size_t i = begin;
    for (; i < end && i % 8 != 0; ++i) one(i);
    const std::size_t whole = end == static_cast<std::size_t>(total_) ? end - i : (end - i) / 8 * 8;
    kernels::pack_signs_residual(values.subspan(i, whole), kernels::scaled_signs(scale),
                                 bits.subspan(i / 8, (whole + 7) / 8));
    for (i += whole; i < end; ++i) one(i);
  }

  std::int64_t count() const override { return total_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("sign", payload, max_bytes());
    if (vote_)
      return kernels::decode_signs(section(bytes, 0, bytes_of_bits(total_)),
                                   kernels::scaled_signs(by), floats_in(out), mode);
    std::vector<float> scales(counts_.size());
    if (!scales.empty()) std::memcpy(scales.data(), bytes.const_data_ptr(), 4 * scales.size());
    for (const float scale : scales)
      if (!std::isfinite(scale) || scale < 0)
        throw DataError(fmt::format("sign: a scale must be finite and at least 0, got {}", scale));
    add_scaled(section(bytes, scale_bytes_, bytes_of_bits(total_)), scales, by, out, mode);
  }

  /// Tensors begin at any bit: the kernel takes whole bytes, what is before the first and after the
  /// last of a tensor goes by itself.
  void add_scaled(std::span<const std::uint8_t> bits, const std::vector<float>& scales, float by,
                  Tensor& out, Write mode) const {
    const auto values = floats_in(out);
    const auto one = [&](std::size_t i, float scale) {
      const float value = (bits[i / 8] >> (i % 8)) & 1 ? -scale : scale;
      values[i] = mode == Write::set ? value : values[i] + value;
    };
    std::size_t begin = 0;
    for (std::size_t t = 0; t < scales.size(); ++t) {
      const float scale = by * scales[t];
      const std::size_t end = begin + static_cast<std::size_t>(counts_[t]);
      std::size_t i = begin;
      for (; i < end && i % 8 != 0; ++i) one(i, scale);
      const std::size_t whole =
          end == static_cast<std::size_t>(total_) ? end - i : (end - i) / 8 * 8;
      kernels::decode_signs(bits.subspan(i / 8, (whole + 7) / 8), kernels::scaled_signs(scale),
                            values.subspan(i, whole), mode);
      for (i += whole; i < end; ++i) one(i, scale);
      begin = end;
    }
  }

  bool vote_;
  std::vector<std::int64_t> counts_;  ///< of the tensors that have a scale
  std::int64_t total_ = 0;
  Bytes scale_bytes_ = 0;
  Tensor payload_;
};

}  // namespace

void register_sign(CodecRegistry& registry) {
  registry.add("sign", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::string scale = reader.text("scale", "mean");
    reader.finish();
    if (scale != "mean" && scale != "vote")
      throw ConfigError(fmt::format("sign: scale must be mean or vote, got '{}'", scale));
    return std::make_unique<Sign>(tensors, scale == "vote");
  });
}

}  // namespace thinwire
#endif
