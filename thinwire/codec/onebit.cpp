// SPDX-License-Identifier: Apache-2.0
// One bit a value and two means: what was not negative and what was.
// Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent and its Application to
// Data-Parallel Distributed Training of Speech DNNs" (2014).
// Update rule, for each block of values: bit = x < 0; a value decodes to the mean of the block's
// values with the same bit; value = mean over ranks of these. Meant for use under `ef`.
// Bytes: 1 bit a value, and 8 a block.
// Passes over memory: two to encode (means, bits), one to decode.
// Departs from the paper: blocks of consecutive values instead of the columns of weight matrices.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_onebit(PayloadRegistry& registry) {
  registry.add(
      "onebit",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors), block = reader.integer("block", 512);
        if (block < 8 || block % 8 != 0)
          throw ConfigError(fmt::format("onebit: block must be a multiple of 8, got {}", block));
        return bytes_of_bits(n) + 8 * ((n + block - 1) / block);
      },
      "one bit a value, and the means of both kinds of each block, under ef {block=512}");
}

}  // namespace thinwire
#else
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class OneBit : public SingleCodec {
 public:
  OneBit(std::int64_t count, std::int64_t block, Bytes bytes)
      : count_(count), block_(block), bytes_(bytes) {}

  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const kernels::SignSums sums = kernels::sums_by_sign(block_of(floats_of(x), b));
      const auto mean = [](double sum, std::int64_t of) {
        return of == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(of));
      };
      const std::array<float, 2> means{mean(sums.other, count_in(b) - sums.negatives),
                                       mean(sums.negative, sums.negatives)};
      std::memcpy(section(out, 8 * b, 8).data(), means.data(), 8);
    }
    kernels::pack_signs(floats_of(x), section(out, 8 * blocks(), bytes_of_bits(count_)));
    return {.parts = {out}};
  }

 private:
  std::int64_t blocks() const { return (count_ + block_ - 1) / block_; }
  std::int64_t count_in(std::int64_t b) const { return std::min(block_, count_ - b * block_); }
  template <class T>
  std::span<T> block_of(std::span<T> all, std::int64_t b) const {
    return all.subspan(static_cast<std::size_t>(b * block_), static_cast<std::size_t>(count_in(b)));
  }

  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_bytes("onebit", payload, bytes_);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      std::array<float, 2> means{};
      std::memcpy(means.data(), section(bytes, 8 * b, 8).data(), 8);
      if (!std::isfinite(means[0]) || !std::isfinite(means[1]))
        throw DataError(
            fmt::format("onebit: means must be finite, got {} and {}", means[0], means[1]));
      kernels::decode_signs(
          section(bytes, 8 * blocks() + b * block_ / 8, bytes_of_bits(count_in(b))),
          {.other = by * means[0], .negative = by * means[1]}, block_of(floats_in(out), b), mode);
    }
  }

  std::int64_t count_, block_;
  Bytes bytes_;
  Tensor payload_;
};

}  // namespace

void register_onebit(CodecRegistry& registry) {
  registry.add("onebit", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t block = reader.integer("block", 512);
    reader.finish();
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<OneBit>(value_count(tensors), block, bytes);
  });
}

}  // namespace thinwire
#endif
