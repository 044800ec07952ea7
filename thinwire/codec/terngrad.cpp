// SPDX-License-Identifier: Apache-2.0
// Three values, by chance, so that the expectation is the value: -s, 0 and s.
// Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad: Ternary Gradients to Reduce Communication in
// Distributed Deep Learning" (2017).
// Update rule, for each tensor: s = min(max |x|, clip sigma), sigma the root mean square of x;
// code = sign(x) with probability min(|x|, s) / s, else 0, from (seed, exchange, step, rank);
// value = mean over ranks of s code.
// Bytes: 2 bits a value, each tensor filled up to a whole byte, and 4 a tensor.
// Passes over memory: two to encode (scale and deviation, codes), one to decode.
// Departs from the paper: sigma is taken about 0 instead of the mean; ranks keep scales of their
// own, as payloads are decoded one by one.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_terngrad(PayloadRegistry& registry) {
  registry.add(
      "terngrad",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const double clip = reader.number("clip", 2.5);
        if (!(clip >= 0))
          throw ConfigError(fmt::format("terngrad: clip must be at least 0, got {}", clip));
        Bytes bytes = 0;
        for (const TensorDesc& tensor : tensors)
          if (value_count(tensor) > 0) bytes += 4 + bytes_of_bits(2 * value_count(tensor));
        return bytes;
      },
      "-s, 0 or s by chance, s of each tensor {clip=2.5 deviations, 0: the largest magnitude}");
}

}  // namespace thinwire
#else
#include <algorithm>
#include <cmath>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class TernGrad : public SingleCodec {
 public:
  TernGrad(std::span<const TensorDesc> tensors, double clip, Bytes bytes)
      : clip_(static_cast<float>(clip)), bytes_(bytes) {
    for (const TensorDesc& tensor : tensors)
      if (value_count(tensor) > 0) counts_.push_back(value_count(tensor));
    for (const std::int64_t count : counts_) total_ += count;
  }

  CodecTraits traits() const override { return {.fixed_size = true, .unbiased = clip_ == 0}; }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    std::size_t begin = 0;
    Bytes at = 0;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      const auto part = floats_of(x).subspan(begin, static_cast<std::size_t>(counts_[t]));
      const float scale = scale_of(part);
      std::memcpy(section(out, at, 4).data(), &scale, 4);
      const RngKey key{.seed = slot.seed + t * 0x9E3779B97F4A7C15,  // numbers of its own
                       .exchange = slot.exchange,
                       .step = slot.step,
                       .rank = slot.rank};
      const Bytes packed = kernels::packed_bytes(counts_[t], 2);
      kernels::encode_levels(part, {.scale = scale, .count = 1}, key, 2,
                             section(out, at + 4, packed));
      begin += part.size();
      at += 4 + packed;
    }
    return {.parts = {out}};
  }

 private:
  float scale_of(std::span<const float> x) const {
    const float largest = kernels::max_abs(x);
    if (clip_ == 0) return largest;
    const double deviation = kernels::norm2(x) / std::sqrt(static_cast<double>(x.size()));
    const auto most = static_cast<float>(clip_ * deviation);
    return most > 0 ? std::min(largest, most) : largest;  // squares of tiny values may vanish
  }

  std::int64_t count() const override { return total_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("terngrad", payload, bytes_);
    std::size_t begin = 0;
    Bytes at = 0;
    for (const std::int64_t count : counts_) {
      float scale = 0;
      std::memcpy(&scale, section(bytes, at, 4).data(), 4);
      if (!std::isfinite(scale) || scale < 0)
        throw DataError(
            fmt::format("terngrad: a scale must be finite and at least 0, got {}", scale));
      const Bytes packed = kernels::packed_bytes(count, 2);
      kernels::decode_levels(section(bytes, at + 4, packed), 2, {.scale = by * scale, .count = 1},
                             floats_in(out).subspan(begin, static_cast<std::size_t>(count)), mode);
      begin += static_cast<std::size_t>(count);
      at += 4 + packed;
    }
  }

  float clip_;
  Bytes bytes_;
  std::vector<std::int64_t> counts_;  ///< of the tensors with elements
  std::int64_t total_ = 0;
  Tensor payload_;
};

}  // namespace

void register_terngrad(CodecRegistry& registry) {
  registry.add("terngrad", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const double clip = reader.number("clip", 2.5);
    reader.finish();
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<TernGrad>(tensors, clip, bytes);
  });
}

}  // namespace thinwire
#endif
