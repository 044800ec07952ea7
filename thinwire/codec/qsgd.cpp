// SPDX-License-Identifier: Apache-2.0
// A few bits a value, rounded by chance so that the expectation is the value.
// Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
// Quantization and Encoding" (2017).
// Update rule, s = 2^(bits-1) - 1: in each block of values with scale m, code = floor(x s / m + u),
// u uniform in [0, 1) from (seed, exchange, step, rank); value = mean over ranks of code m / s.
// Bytes: `bits` a value, packed, and a scale of 4 bytes a block.
// Departs from the paper: m is the largest magnitude of the block (norm=max) unless norm=l2 is
// asked for; codes have a fixed width, without entropy coding.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_qsgd(PayloadRegistry& registry) {
  registry.add(
      "qsgd",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors), bits = reader.integer("bits", 4);
        const std::int64_t block = reader.integer("block", 512);
        if (bits < 2 || bits > 8)
          throw ConfigError(fmt::format("qsgd: bits must be in [2, 8], got {}", bits));
        if (block < 8 || block % 8 != 0)
          throw ConfigError(fmt::format("qsgd: block must be a multiple of 8, got {}", block));
        return bytes_of_bits(bits * n) + 4 * ((n + block - 1) / block);
      },
      "a few bits a value, rounded by chance {bits=4, block=512, norm=max or l2}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class Qsgd : public SingleCodec {
 public:
  Qsgd(std::int64_t count, int bits, std::int64_t block, bool l2, Bytes bytes)
      : count_(count), bits_(bits), block_(block), l2_(l2), bytes_(bytes) {}

  CodecTraits traits() const override {
    return {.fixed_size = true, .unbiased = true, .joins = true};
  }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const auto part = block_of(floats_of(x), b);
      const float scale = l2_ ? static_cast<float>(kernels::norm2(part)) : kernels::max_abs(part);
      std::memcpy(section(out, 4 * b, 4).data(), &scale, 4);
      kernels::encode_levels(part, levels(scale), key_of(b, slot), bits_, packed_of(out, b));
    }
    return {.parts = {out}};
  }

  /// One pass: a block is in the cache when its scale is known.
  Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) override {
    if (sum.scalar_type() != at::kFloat || !x.defined()) return Codec::encode_rest(sum, x, slot);
    Tensor& out = byte_room(payload_, bytes_, sum);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const auto part = block_of(floats_in(sum), b);
      float scale = kernels::accumulate_max_abs(part, block_of(floats_of(x), b));
      if (l2_) scale = static_cast<float>(kernels::norm2(part));
      std::memcpy(section(out, 4 * b, 4).data(), &scale, 4);
      kernels::encode_levels_residual(part, levels(scale), key_of(b, slot), bits_,
                                      packed_of(out, b));
    }
    return {.parts = {out}};
  }

 private:
  /// Each block draws numbers of its own.
  static RngKey key_of(std::int64_t b, const Slot& slot) {
    return {.seed = slot.seed + static_cast<std::uint64_t>(b) * 0x9E3779B97F4A7C15,
            .exchange = slot.exchange,
            .step = slot.step,
            .rank = slot.rank};
  }
  kernels::Levels levels(float scale) const {
    return {.scale = scale, .count = kernels::levels_of_bits(bits_)};
  }
  std::int64_t blocks() const { return (count_ + block_ - 1) / block_; }
  std::int64_t count_in(std::int64_t b) const { return std::min(block_, count_ - b * block_); }
  template <class T>
  std::span<T> block_of(std::span<T> all, std::int64_t b) const {
    return all.subspan(static_cast<std::size_t>(b * block_), static_cast<std::size_t>(count_in(b)));
  }
  /// Blocks are multiples of 8 values, so each begins with a byte.
  std::span<std::uint8_t> packed_of(const Tensor& bytes, std::int64_t b) const {
    return section(bytes, 4 * blocks() + b * block_ * bits_ / 8,
                   kernels::packed_bytes(count_in(b), bits_));
  }

  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("qsgd", payload, bytes_);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      float scale = 0;
      std::memcpy(&scale, section(bytes, 4 * b, 4).data(), 4);
      if (!std::isfinite(scale) || scale < 0)
        throw DataError(fmt::format("qsgd: a scale must be finite and at least 0, got {}", scale));
      kernels::decode_levels(packed_of(bytes, b), bits_, levels(by * scale),
                             block_of(floats_in(out), b), mode);
    }
  }

  std::int64_t count_;
  int bits_;
  std::int64_t block_;
  bool l2_;
  Bytes bytes_;
  Tensor payload_;
};

}  // namespace

void register_qsgd(CodecRegistry& registry) {
  registry.add("qsgd", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t bits = reader.integer("bits", 4), block = reader.integer("block", 512);
    const std::string norm = reader.text("norm", "max");
    reader.finish();
    if (norm != "max" && norm != "l2")
      throw ConfigError(fmt::format("qsgd: norm must be max or l2, got '{}'", norm));
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<Qsgd>(value_count(tensors), static_cast<int>(bits), block, norm == "l2",
                                  bytes);
  });
}

}  // namespace thinwire
#endif
