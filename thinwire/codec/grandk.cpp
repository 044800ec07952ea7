// SPDX-License-Identifier: Apache-2.0
// Random values of the bucket, each once before any comes again, on one grid for all ranks.
// Vineeth S, "Quantization for Distributed Optimization" (2021): GlobalRandK-MaxNorm.
// Update rule: all ranks draw one permutation of the bucket's n values, cut it into blocks of k and
// send the next block in every step, as qsgd_max_norm does; m is the largest |x| of the block.
// value = mean over ranks there, else 0; unbiased: times n / k. When every value has been sent the
// permutation is drawn anew, from (seed, exchange, round through the bucket).
// Bytes: k fields of ceil(log2(2 s ranks + 1)) bits, as many as fit a word of 64 bits; 8 to agree.
// Passes over memory: none over the bucket, two over the block.
// Departs from the paper's program: that leaves the rank's own gradient where nothing was sent, so
// that ranks drift apart; here such values are zeros (or stay in a memory). The permutation is
// computed where it is needed, by a cipher on pairs, and not stored.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/codec/grid_size.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

struct GrandKSize {
  GridSize grid;
  std::int64_t k = 0;
};

GrandKSize grandk_size(const Spec& spec, SpecReader& reader, std::int64_t n) {
  const std::int64_t bits = reader.integer("bits", 4);
  if (bits < 1 || bits > 13)
    throw ConfigError(fmt::format("grandk: bits must be in [1, 13], got {}", bits));
  const std::int64_t chosen = selected_count(reader, "grandk", 1, n);
  const bool told = spec.params.contains("ratio") || spec.params.contains("count");
  return {.grid = read_grid_size(reader, "grandk", (std::int64_t{1} << bits) - 1),
          .k = told ? chosen : std::min<std::int64_t>(10'000, n)};
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_grandk(PayloadRegistry& registry) {
  registry.add(
      "grandk", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const GrandKSize size = grandk_size(spec, reader, value_count(tensors));
        return size.grid.bytes(size.k) + (size.k > 0 ? agreement_bytes(1) : 0);
      }),
      "the next k values of a permutation that ranks share, as qsgd_max_norm {count=10000, or "
      "ratio; bits=4 and a sign, ranks=64 at most, unbiased=no}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include <cmath>

#include "thinwire/codec/agreed_grid.h"
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

/// A permutation of [0, n): Feistel's cipher on the two digits of a number below rows * columns,
/// which is hardly more than n; what lies beyond n goes round again.
class ComputedPermutation {
 public:
  ComputedPermutation(std::int64_t n, const RngKey& key) : n_(static_cast<std::uint64_t>(n)) {
    rows_ = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    columns_ = (n_ + rows_ - 1) / rows_;
    const Rng rng(key);
    key_ = rng.key();
    stream_ = rng.stream();
  }
  std::int64_t operator()(std::int64_t i) const {
    auto at = static_cast<std::uint64_t>(i);
    do at = once(at);
    while (at >= n_);
    return static_cast<std::int64_t>(at);
  }

 private:
  std::uint64_t once(std::uint64_t at) const {
    std::uint64_t row = at % rows_, column = at / rows_;
    for (std::uint32_t round = 0; round < 4; ++round) {
      row = (row + drawn(column, 2 * round)) % rows_;
      column = (column + drawn(row, 2 * round + 1)) % columns_;
    }
    return column * rows_ + row;
  }
  std::uint64_t drawn(std::uint64_t digit, std::uint32_t round) const {
    const auto words =
        philox4x32({static_cast<std::uint32_t>(digit), round, stream_[0], stream_[1]}, key_, 7);
    return std::uint64_t{words[0]} << 32 | words[1];
  }

  std::uint64_t n_, rows_, columns_;
  std::array<std::uint32_t, 2> key_, stream_;
};

class GrandK : public SingleCodec {
 public:
  GrandK(std::int64_t n, GrandKSize size, bool unbiased)
      : n_(n), grid_("grandk", size.grid, size.k), unbiased_(unbiased) {}

  CodecTraits traits() const override {
    return grid_.traits(unbiased_, grid_.count() > 0 ? agreement_bytes(1) : 0);
  }
  Bytes max_bytes() const override { return grid_.bytes(); }

  std::optional<Proposal> propose(const Tensor& x, const Slot& slot) override {
    if (!slot.agreed.empty() || grid_.count() == 0) return std::nullopt;
    take(x, slot);
    const float own = kernels::max_abs(values_);
    return AgreedGrid::propose({&own, 1}, slot);
  }

  Payload encode(const Tensor& x, const Slot& slot) override {
    take(x, slot);
    const float own = kernels::max_abs(values_);
    scale_ = grid_.agreed({&own, 1}, slot)[0];
    const RngKey key{
        .seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = slot.rank};
    std::vector<std::int16_t> codes(values_.size());
    kernels::round_levels(values_, {.scale = scale_, .count = static_cast<int>(levels())}, key,
                          std::span(codes));
    codes.resize(static_cast<std::size_t>(grid_.count()));  // the last block is shorter
    return grid_.pack(codes);
  }

 private:
  std::int64_t levels() const { return grid_.size().levels; }

  /// This step's positions, and x there.
  void take(const Tensor& values, const Slot& slot) {
    const Tensor x = values.to(at::kFloat);
    positions_.clear();
    values_.clear();
    if (n_ == 0) return;
    const std::int64_t k = grid_.count(), blocks = (n_ + k - 1) / k;
    const ComputedPermutation permutation(
        n_, {.seed = slot.seed, .exchange = slot.exchange, .step = slot.step / blocks, .rank = -1});
    const std::int64_t begin = slot.step % blocks * k, end = std::min(n_, begin + k);
    for (std::int64_t i = begin; i < end; ++i) {
      positions_.push_back(static_cast<std::size_t>(permutation(i)));
      values_.push_back(floats_of(x)[positions_.back()]);
    }
  }

  std::int64_t count() const override { return n_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    if (mode == Write::set) out.zero_();
    std::vector<std::int32_t> sums(static_cast<std::size_t>(grid_.count()));
    kernels::unpack_sums(grid_.words_of(payload), grid_.size().bits, sums);
    const auto to = floats_in(out);
    float unit = by * scale_ / static_cast<float>(levels());
    if (unbiased_ && !positions_.empty())
      unit *= static_cast<float>(n_) / static_cast<float>(positions_.size());
    for (std::size_t i = 0; i < positions_.size(); ++i)
      to[positions_[i]] += static_cast<float>(sums[i]) * unit;
  }

  std::int64_t n_;
  AgreedGrid grid_;
  bool unbiased_;
  float scale_ = 0;  ///< of this step, as what follows
  std::vector<std::size_t> positions_;
  std::vector<float> values_;
};

}  // namespace

void register_grandk(CodecRegistry& registry) {
  registry.add("grandk", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t n = value_count(tensors);
    const GrandKSize size = grandk_size(spec, reader, n);
    const bool unbiased = reader.flag("unbiased", false);
    reader.finish();
    return std::make_unique<GrandK>(n, size, unbiased);
  });
}

}  // namespace thinwire
#endif
