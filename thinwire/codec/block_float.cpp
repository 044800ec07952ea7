// SPDX-License-Identifier: Apache-2.0
// Blocks of integers with one exponent each.
// Wilkinson (1963) has block floating point; Lindstrom, "Fixed-Rate Compressed Floating-Point
// Arrays" (2014, ZFP) puts a transform and bit planes after it, Xu, Anthony et al., "Accelerating
// Large Language Model Training with Hybrid GPU-based Compression" (2024) compare rates of that.
// Update rule, for each block: u = the smallest power of two with which the largest code fits,
// code = the integer nearest to x / u, ties to even, |code| < 2^(bits-1); value = mean over ranks
// of code u.
// Bytes: `bits` a value, packed, and a byte a block.
// Passes over memory: one to encode, as blocks stay in the cache; one to decode.
// Departs from ZFP: no transform between neighbours, which in a gradient have little in common.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_block_float(PayloadRegistry& registry) {
  registry.add(
      "block_float",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors), bits = reader.integer("bits", 8);
        const std::int64_t block = reader.integer("block", 32);
        if (bits < 2 || bits > 16)
          throw ConfigError(fmt::format("block_float: bits must be in [2, 16], got {}", bits));
        if (block < 8 || block % 8 != 0)
          throw ConfigError(
              fmt::format("block_float: block must be a multiple of 8, got {}", block));
        return bytes_of_bits(bits * n) + (n + block - 1) / block;
      },
      "integers with an exponent for each block {bits=8, block=32}");
}

}  // namespace thinwire
#else
#include <algorithm>
#include <array>
#include <cmath>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/sums.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class BlockFloat : public SingleCodec {
 public:
  BlockFloat(std::int64_t count, int bits, std::int64_t block, Bytes bytes)
      : count_(count), bits_(bits), block_(block), bytes_(bytes) {}

  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const auto part = block_of(floats_of(x), b);
      const std::uint8_t exponent = exponent_of(kernels::max_abs(part));
      section(out, b, 1)[0] = exponent;
      codes_.resize(part.size());
      kernels::round_nearest(part, levels(exponent, 1), codes_);
      fields_.resize(part.size());
      for (std::size_t i = 0; i < part.size(); ++i)
        fields_[i] = static_cast<std::uint16_t>(codes_[i] + most());
      kernels::pack_fields(fields_, bits_, packed_of(out, b));
    }
    return {.parts = {out}};
  }

 private:
  static constexpr std::uint8_t kNotFinite = 255;

  int most() const { return kernels::levels_of_bits(bits_); }
  std::int64_t blocks() const { return (count_ + block_ - 1) / block_; }
  std::int64_t count_in(std::int64_t b) const { return std::min(block_, count_ - b * block_); }
  template <class T>
  std::span<T> block_of(std::span<T> all, std::int64_t b) const {
    return all.subspan(static_cast<std::size_t>(b * block_), static_cast<std::size_t>(count_in(b)));
  }
  /// Blocks are multiples of 8 values, so each begins with a byte.
  std::span<std::uint8_t> packed_of(const Tensor& bytes, std::int64_t b) const {
    return section(bytes, blocks() + b * block_ * bits_ / 8,
                   kernels::packed_bytes(count_in(b), bits_));
  }

  /// The unit is 2^(e - 126 - (bits - 1)); 0 stands for a block of zeros, and units do not go below
  /// that of 1.
  std::uint8_t exponent_of(float largest) const {
    if (largest == 0) return 0;
    if (!std::isfinite(largest)) return kNotFinite;
    int exponent = std::max(std::ilogb(largest) + 1, -125);
    // The largest may round up to a code that does not fit.
    if (std::lrintf(std::ldexp(largest, bits_ - 1 - exponent)) > most()) ++exponent;
    return static_cast<std::uint8_t>(std::min(exponent + 126, 254));
  }

  kernels::Levels levels(std::uint8_t exponent, float by) const {
    const float unit = exponent == 0 ? 0 : std::ldexp(by, exponent - 126 - (bits_ - 1));
    return {.scale = unit * static_cast<float>(most()), .count = most()};
  }

  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("block_float", payload, bytes_);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const std::uint8_t exponent = section(bytes, b, 1)[0];
      if (exponent == kNotFinite)
        throw DataError("block_float: a block has values that are not finite");
      kernels::decode_levels(packed_of(bytes, b), bits_, levels(exponent, by),
                             block_of(floats_in(out), b), mode);
    }
  }

  std::int64_t count_;
  int bits_;
  std::int64_t block_;
  Bytes bytes_;
  Tensor payload_;
  std::vector<std::int16_t> codes_;
  std::vector<std::uint16_t> fields_;
};

}  // namespace

void register_block_float(CodecRegistry& registry) {
  registry.add("block_float", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t bits = reader.integer("bits", 8), block = reader.integer("block", 32);
    reader.finish();
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<BlockFloat>(value_count(tensors), static_cast<int>(bits), block, bytes);
  });
}

}  // namespace thinwire
#endif
