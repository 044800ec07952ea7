// SPDX-License-Identifier: Apache-2.0
// Uniform levels between the least and the largest value of each block.
// Zhang, Chen, Liang et al., "Boosting Distributed Full-graph GNN Training with Asynchronous
// One-bit Communication" (2023, Sylvie) uses it with one bit; it is the affine quantisation of most
// libraries.
// Update rule, for each block with range [l, h] and d = (h - l) / (2^bits - 1): field = the integer
// nearest to (x - l) / d, or rounded by chance from (seed, exchange, step, rank); value = mean over
// ranks of l + field d.
// Bytes: `bits` a value, packed, and 8 a block.
// Passes over memory: one to encode, as blocks stay in the cache; one to decode.
// Departs from the paper: nothing in the rule.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_minmax(PayloadRegistry& registry) {
  registry.add(
      "minmax",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors), bits = reader.integer("bits", 4);
        const std::int64_t block = reader.integer("block", 512);
        if (bits < 1 || bits > 15)
          throw ConfigError(fmt::format("minmax: bits must be in [1, 15], got {}", bits));
        if (block < 8 || block % 8 != 0)
          throw ConfigError(fmt::format("minmax: block must be a multiple of 8, got {}", block));
        return bytes_of_bits(bits * n) + 8 * ((n + block - 1) / block);
      },
      "even levels between the least and the largest value of a block {bits=4, block=512, "
      "round=nearest or chance}");
}

}  // namespace thinwire
#else
#include <algorithm>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/ranges.h"
#include "thinwire/codec/kernels/sums.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class MinMax : public SingleCodec {
 public:
  MinMax(std::int64_t count, int bits, std::int64_t block, bool chance, Bytes bytes)
      : count_(count), bits_(bits), block_(block), chance_(chance), bytes_(bytes) {}

  CodecTraits traits() const override { return {.fixed_size = true, .unbiased = chance_}; }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const auto part = block_of(floats_of(x), b);
      const kernels::Range range = kernels::range_of(part);
      std::memcpy(section(out, 8 * b, 8).data(), &range, 8);
      const RngKey key{.seed = slot.seed + static_cast<std::uint64_t>(b) * 0x9E3779B97F4A7C15,
                       .exchange = slot.exchange,
                       .step = slot.step,
                       .rank = slot.rank};
      encode_block(part, range, key, packed_of(out, b));
    }
    return {.parts = {out}};
  }

 private:
  std::int64_t blocks() const { return (count_ + block_ - 1) / block_; }
  std::int64_t count_in(std::int64_t b) const { return std::min(block_, count_ - b * block_); }
  template <class T>
  std::span<T> block_of(std::span<T> all, std::int64_t b) const {
    return all.subspan(static_cast<std::size_t>(b * block_), static_cast<std::size_t>(count_in(b)));
  }
  /// Blocks are multiples of 8 values, so each begins with a byte.
  std::span<std::uint8_t> packed_of(const Tensor& bytes, std::int64_t b) const {
    return section(bytes, 8 * blocks() + b * block_ * bits_ / 8,
                   kernels::packed_bytes(count_in(b), bits_));
  }

  /// Levels above the least value are those of a magnitude.
  void encode_block(std::span<const float> x, kernels::Range range, const RngKey& key,
                    std::span<std::uint8_t> packed) {
    above_.resize(x.size());
    codes_.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) above_[i] = x[i] - range.least;
    const kernels::Levels levels{.scale = range.largest - range.least, .count = (1 << bits_) - 1};
    chance_ ? kernels::round_levels(above_, levels, key, std::span(codes_))
            : kernels::round_nearest(above_, levels, codes_);
    fields_.assign(codes_.begin(), codes_.end());
    kernels::pack_fields(fields_, bits_, packed);
  }

  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("minmax", payload, bytes_);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      kernels::Range range;
      std::memcpy(&range, section(bytes, 8 * b, 8).data(), 8);
      kernels::decode_range(packed_of(bytes, b), bits_, range, by, block_of(floats_in(out), b),
                            mode);
    }
  }

  std::int64_t count_;
  int bits_;
  std::int64_t block_;
  bool chance_;
  Bytes bytes_;
  Tensor payload_;
  std::vector<float> above_;
  std::vector<std::int16_t> codes_;
  std::vector<std::uint16_t> fields_;
};

}  // namespace

void register_minmax(CodecRegistry& registry) {
  registry.add("minmax", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t bits = reader.integer("bits", 4), block = reader.integer("block", 512);
    const std::string round = reader.text("round", "nearest");
    reader.finish();
    if (round != "nearest" && round != "chance")
      throw ConfigError(fmt::format("minmax: round must be nearest or chance, got '{}'", round));
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<MinMax>(value_count(tensors), static_cast<int>(bits), block,
                                    round == "chance", bytes);
  });
}

}  // namespace thinwire
#endif
