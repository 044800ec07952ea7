// SPDX-License-Identifier: Apache-2.0
// QSGD on one grid for all ranks: codes are added without decoding.
// Vineeth S, "Quantization for Distributed Optimization" (2021): QSGD-MaxNorm.
// Update rule, s = 2^bits - 1: m = the largest |x| of the bucket over all ranks, one all_reduce by
// max; code = floor(x s / m + u), u uniform in [0, 1) from (seed, exchange, step, rank); value =
// m / (s n) times the sum of codes over n ranks, or m / s for a sum.
// Bytes: a field of ceil(log2(2 s ranks + 1)) bits a value, as many as fit a word of 64 bits; 8 to
// agree.
// Passes over memory: two to encode (largest, codes) and one over codes of 2 bytes; one to decode.
// Departs from the paper: fields are as wide as the sum needs, where its program sends 8 or 32 bits
// a value and overflows beyond two ranks with 6 bits.
#include <fmt/format.h>

#include "thinwire/codec/grid_size.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

GridSize qsgd_max_norm_size(SpecReader& reader) {
  const std::int64_t bits = reader.integer("bits", 4);
  if (bits < 1 || bits > 13)
    throw ConfigError(fmt::format("qsgd_max_norm: bits must be in [1, 13], got {}", bits));
  return read_grid_size(reader, "qsgd_max_norm", (std::int64_t{1} << bits) - 1);
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_qsgd_max_norm(PayloadRegistry& registry) {
  registry.add("qsgd_max_norm", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
                 SpecReader reader(spec);
                 const std::int64_t n = value_count(tensors);
                 return qsgd_max_norm_size(reader).bytes(n) + (n > 0 ? agreement_bytes(1) : 0);
               }),
               "qsgd on one grid, added in the transport {bits=4 and a sign, ranks=64 at most}");
}

}  // namespace thinwire
#else
#include "thinwire/codec/agreed_grid.h"
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class QsgdMaxNorm : public SingleCodec {
 public:
  QsgdMaxNorm(std::int64_t count, GridSize size)
      : grid_("qsgd_max_norm", size, count), codes_(static_cast<std::size_t>(count)) {}

  CodecTraits traits() const override {
    return grid_.traits(true, grid_.count() > 0 ? agreement_bytes(1) : 0);
  }
  Bytes max_bytes() const override { return grid_.bytes(); }

  std::optional<Proposal> propose(const Tensor& x, const Slot& slot) override {
    if (!slot.agreed.empty() || grid_.count() == 0) return std::nullopt;
    const float own = kernels::max_abs(floats_of(x.to(at::kFloat)));
    return AgreedGrid::propose({&own, 1}, slot);
  }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    const float own = slot.agreed.empty() ? kernels::max_abs(floats_of(x)) : 0;
    scale_ = grid_.agreed({&own, 1}, slot)[0];
    const RngKey key{
        .seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = slot.rank};
    kernels::round_levels(floats_of(x), levels(), key, std::span(codes_));
    return grid_.pack(codes_);
  }

 private:
  kernels::Levels levels() const {
    return {.scale = scale_, .count = static_cast<int>(grid_.size().levels)};
  }
  std::int64_t count() const override { return grid_.count(); }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    kernels::decode_sums(grid_.words_of(payload), grid_.size().bits, by * levels().unit(),
                         floats_in(out), mode);
  }

  AgreedGrid grid_;
  float scale_ = 0;  ///< of this step
  std::vector<std::int16_t> codes_;
};

}  // namespace

void register_qsgd_max_norm(CodecRegistry& registry) {
  registry.add("qsgd_max_norm", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const GridSize size = qsgd_max_norm_size(reader);
    reader.finish();
    return std::make_unique<QsgdMaxNorm>(value_count(tensors), size);
  });
}

}  // namespace thinwire
#endif
