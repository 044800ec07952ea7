// SPDX-License-Identifier: Apache-2.0
// QSGD on two grids for all ranks: small values take the fine one at the width of the coarse one.
// Vineeth S, "Quantization for Distributed Optimization" (2021): QSGD-MaxNorm with two scales.
// Update rule, s = 2^bits - 1, t = 2^fine - 1: m = the largest |x| of the bucket over all ranks; a
// value is coarse if |x| t / m > s on any rank, one all_reduce of a bit a value; code = floor(x k /
// m + u), k = s where coarse, else t, u uniform in [0, 1) from (seed, exchange, step, rank), so
// that |code| <= s; value = m / (k n) times the sum of codes over n ranks, or m / k for a sum.
// Bytes: a field of ceil(log2(2 s ranks + 1)) bits a value, as many as fit a word of 64 bits; to
// agree, 8 and a bit a value.
// Passes over memory: four to encode (largest, bits, the scaled values, codes), one to decode.
// Departs from the paper's program: the grid is chosen from the value, not from its rounded code,
// which is biased at the edge; the choice travels as a bit, not as a byte; two scales.
#include <fmt/format.h>

#include "thinwire/codec/grid_size.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

struct MultiScaleSize {
  GridSize grid;
  float ratio = 1;  ///< of the grids, t / s
};

MultiScaleSize multi_scale_size(SpecReader& reader) {
  const std::int64_t bits = reader.integer("bits", 6), fine = reader.integer("fine", 10);
  if (bits < 1 || bits > 13)
    throw ConfigError(fmt::format("multi_scale: bits must be in [1, 13], got {}", bits));
  if (fine <= bits || fine > 24)
    throw ConfigError(fmt::format("multi_scale: fine must be in [{}, 24] with bits={}, got {}",
                                  bits + 1, bits, fine));
  const std::int64_t s = (std::int64_t{1} << bits) - 1, t = (std::int64_t{1} << fine) - 1;
  return {.grid = read_grid_size(reader, "multi_scale", s),
          .ratio = static_cast<float>(t) / static_cast<float>(s)};
}

Bytes multi_scale_proposals(std::int64_t count) {
  return count > 0 ? agreement_bytes(1) + bytes_of_bits(count) : 0;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_multi_scale(PayloadRegistry& registry) {
  registry.add(
      "multi_scale", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors);
        return multi_scale_size(reader).grid.bytes(n) + multi_scale_proposals(n);
      }),
      "qsgd on two grids, added in the transport {bits=6 and a sign, fine=10, ranks=64 at most}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include <cmath>

#include "thinwire/codec/agreed_grid.h"
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class MultiScale : public SingleCodec {
 public:
  MultiScale(std::int64_t count, MultiScaleSize size)
      : grid_("multi_scale", size.grid, count),
        ratio_(size.ratio),
        scaled_(static_cast<std::size_t>(count)),
        codes_(scaled_.size()) {}

  CodecTraits traits() const override {
    return grid_.traits(true, multi_scale_proposals(grid_.count()));
  }
  Bytes max_bytes() const override { return grid_.bytes(); }

  std::optional<Proposal> propose(const Tensor& values, const Slot& slot) override {
    if (slot.agreed.size() == 2 || grid_.count() == 0) return std::nullopt;
    const Tensor x = values.to(at::kFloat);
    const float own = kernels::max_abs(floats_of(x));
    if (slot.agreed.empty()) return AgreedGrid::propose({&own, 1}, slot);
    return Proposal{.value = coarse(floats_of(x), grid_.agreed({&own, 1}, slot)[0]),
                    .op = Combine::bit_or};
  }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    const auto from = floats_of(x);
    const float own = slot.agreed.empty() ? kernels::max_abs(from) : 0;
    scale_ = grid_.agreed({&own, 1}, slot)[0];
    coarse_ = slot.agreed.size() == 2 ? slot.agreed[1] : coarse(from, scale_);
    for_each_bit([&](std::size_t i, bool is_coarse) {
      scaled_[i] = is_coarse ? from[i] : from[i] * ratio_;
    });
    const RngKey key{
        .seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = slot.rank};
    kernels::round_levels(scaled_, levels(), key, std::span(codes_));
    return grid_.pack(codes_);
  }

 private:
  kernels::Levels levels() const {
    return {.scale = scale_, .count = static_cast<int>(grid_.size().levels)};
  }

  /// A set bit where the value needs the coarse grid: the sign of what room it leaves in the fine
  /// one.
  Tensor coarse(std::span<const float> x, float scale) {
    for (std::size_t i = 0; i < x.size(); ++i) scaled_[i] = scale - std::fabs(x[i]) * ratio_;
    Tensor bits = at::empty({bytes_of_bits(grid_.count())}, at::kByte);
    kernels::pack_signs(scaled_, section(bits, 0, bits.numel()));
    return bits;
  }

  template <class Each>
  void for_each_bit(Each each) const {
    const auto* bits = coarse_.const_data_ptr<std::uint8_t>();
    for (std::size_t i = 0; i < scaled_.size(); ++i) each(i, (bits[i / 8] >> (i % 8) & 1) != 0);
  }

  std::int64_t count() const override { return grid_.count(); }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    std::vector<std::int32_t> sums(scaled_.size());
    kernels::unpack_sums(grid_.words_of(payload), grid_.size().bits, sums);
    const auto to = floats_in(out);
    const float unit = by * levels().unit(), fine = unit / ratio_;
    for_each_bit([&](std::size_t i, bool is_coarse) {
      const float value = static_cast<float>(sums[i]) * (is_coarse ? unit : fine);
      to[i] = mode == Write::set ? value : to[i] + value;
    });
  }

  AgreedGrid grid_;
  float ratio_;
  float scale_ = 0;  ///< of this step
  Tensor coarse_;    ///< of this step
  std::vector<float> scaled_;
  std::vector<std::int16_t> codes_;
};

}  // namespace

void register_multi_scale(CodecRegistry& registry) {
  registry.add("multi_scale", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const MultiScaleSize size = multi_scale_size(reader);
    reader.finish();
    return std::make_unique<MultiScale>(value_count(tensors), size);
  });
}

}  // namespace thinwire
#endif
