// SPDX-License-Identifier: Apache-2.0
// Integers on a grid that all ranks share, added by the transport as integers.
// Mishchenko, Wang, Kovalev, Richtarik, "IntSGD: Adaptive Floatless Compression of Stochastic
// Gradients" (2021); the grid by the largest magnitude is that of Vineeth S, "Quantization for
// Distributed Optimization" (2021).
// Update rule, s = 2^(bits-1) - 1, for each tensor: m = the largest |x| of all ranks, one
// all_reduce by max; code = the integer nearest to x s / m, ties to even, or rounded by chance;
// value = m / s times the sum of codes over ranks, divided by their number for a mean.
// Bytes: a field of ceil(log2(2 s ranks + 1)) bits a value, as many as fit a word of 64 bits; and
// 4 a tensor, and 4, to agree.
// Passes over memory: two to encode (largest, codes) and one over codes of 2 bytes; one to decode.
// Departs from the papers: m instead of a moving average of steps; fields share words, where the
// papers' programs send 8 or 32 bits a value and overflow beyond two ranks with 6 bits.
#include <fmt/format.h>

#include "thinwire/codec/grid_size.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

GridSize scaled_int_size(SpecReader& reader) {
  const std::int64_t bits = reader.integer("bits", 8);
  if (bits < 2 || bits > 15)
    throw ConfigError(fmt::format("scaled_int: bits must be in [2, 15], got {}", bits));
  return read_grid_size(reader, "scaled_int", (std::int64_t{1} << (bits - 1)) - 1);
}

Bytes scaled_int_proposals(std::size_t tensors) {
  return tensors == 0 ? 0 : agreement_bytes(static_cast<std::int64_t>(tensors));
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_scaled_int(PayloadRegistry& registry) {
  registry.add(
      "scaled_int", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        std::size_t scales = 0;
        for (const TensorDesc& tensor : tensors) scales += value_count(tensor) > 0 ? 1 : 0;
        return scaled_int_size(reader).bytes(value_count(tensors)) + scaled_int_proposals(scales);
      }),
      "integers on a grid that ranks agree on, added in the transport {bits=8, ranks=64 at most, "
      "round=nearest or chance}");
}

}  // namespace thinwire
#else
#include <algorithm>

#include "thinwire/codec/agreed_grid.h"
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class ScaledInt : public SingleCodec {
 public:
  ScaledInt(std::span<const TensorDesc> tensors, GridSize size, bool chance)
      : grid_("scaled_int", size, value_count(tensors)), chance_(chance) {
    for (const TensorDesc& tensor : tensors)
      if (value_count(tensor) > 0) counts_.push_back(static_cast<std::size_t>(value_count(tensor)));
    scales_.resize(counts_.size());
    codes_.resize(static_cast<std::size_t>(grid_.count()));
  }

  CodecTraits traits() const override {
    return grid_.traits(chance_, scaled_int_proposals(counts_.size()));
  }
  Bytes max_bytes() const override { return grid_.bytes(); }

  std::optional<Proposal> propose(const Tensor& x, const Slot& slot) override {
    if (!slot.agreed.empty() || grid_.count() == 0) return std::nullopt;
    return AgreedGrid::propose(largest(x.to(at::kFloat)), slot);
  }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    scales_ = grid_.agreed(slot.agreed.empty() ? largest(x) : scales_, slot);
    std::size_t begin = 0;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      const auto part = floats_of(x).subspan(begin, counts_[t]);
      const auto codes = std::span(codes_).subspan(begin, counts_[t]);
      const RngKey key{.seed = slot.seed + t * 0x9E3779B97F4A7C15,  // numbers of its own
                       .exchange = slot.exchange,
                       .step = slot.step,
                       .rank = slot.rank};
      chance_ ? kernels::round_levels(part, levels(scales_[t]), key, codes)
              : kernels::round_nearest(part, levels(scales_[t]), codes);
      begin += counts_[t];
    }
    return grid_.pack(codes_);
  }

 private:
  kernels::Levels levels(float scale) const {
    return {.scale = scale, .count = static_cast<int>(grid_.size().levels)};
  }

  std::vector<float> largest(const Tensor& x) const {
    std::vector<float> out;
    std::size_t begin = 0;
    for (const std::size_t count : counts_) {
      out.push_back(kernels::max_abs(floats_of(x).subspan(begin, count)));
      begin += count;
    }
    return out;
  }

  std::int64_t count() const override { return grid_.count(); }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const auto words = grid_.words_of(payload);
    if (counts_.size() == 1)
      return kernels::decode_sums(words, grid_.size().bits, by * levels(scales_[0]).unit(),
                                  floats_in(out), mode);
    std::vector<std::int32_t> sums(static_cast<std::size_t>(grid_.count()));
    kernels::unpack_sums(words, grid_.size().bits, sums);
    std::size_t begin = 0;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      kernels::decode_codes(std::span<const std::int32_t>(sums).subspan(begin, counts_[t]),
                            by * levels(scales_[t]).unit(),
                            floats_in(out).subspan(begin, counts_[t]), mode);
      begin += counts_[t];
    }
  }

  AgreedGrid grid_;
  bool chance_;
  std::vector<std::size_t> counts_;  ///< of the tensors with elements
  std::vector<float> scales_;        ///< of this step
  std::vector<std::int16_t> codes_;
};

}  // namespace

void register_scaled_int(CodecRegistry& registry) {
  registry.add("scaled_int", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const GridSize size = scaled_int_size(reader);
    const std::string round = reader.text("round", "nearest");
    reader.finish();
    if (round != "nearest" && round != "chance")
      throw ConfigError(
          fmt::format("scaled_int: round must be nearest or chance, got '{}'", round));
    return std::make_unique<ScaledInt>(tensors, size, round == "chance");
  });
}

}  // namespace thinwire
#endif
