// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "thinwire/codec/kernels/indices.h"
#include "thinwire/core/error.h"

namespace thinwire {

void ChunkPayload::pack(std::span<const float> x, std::span<std::uint8_t> out) {
  last_.indices.clear();
  last_.values.clear();
  for (const Chunk& chunk : chunks_) {
    select_.select(
        x.subspan(static_cast<std::size_t>(chunk.begin), static_cast<std::size_t>(chunk.count)),
        chunk.keep, of_chunk_);
    for (const std::uint32_t index : of_chunk_.indices)
      last_.indices.push_back(index + static_cast<std::uint32_t>(chunk.begin));
    last_.values.insert(last_.values.end(), of_chunk_.values.begin(), of_chunk_.values.end());
  }
  const std::size_t codes = static_cast<std::size_t>(
      bytes_of_bits(static_cast<std::int64_t>(last_.values.size()) * bits_));
  const std::size_t scales = bits_ == 32 ? 0 : 4 * chunks_.size();
  if (bits_ != 32)
    quantise(out.first(codes), out.subspan(codes, scales));
  else if (!last_.values.empty())
    std::memcpy(out.data(), last_.values.data(), codes);
  if (!chunks_.empty()) kernels::pack_indices(last_.indices, values(), out.subspan(codes + scales));
}

namespace {

/// The value of a code: the same expression on both sides.
float level_of(std::uint32_t code, float scale, int bits) {
  const int most = (1 << bits) - 1;
  return scale * (static_cast<float>(2 * static_cast<int>(code) - most) / static_cast<float>(most));
}

}  // namespace

void ChunkPayload::quantise(std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  const auto most = static_cast<float>((1 << bits_) - 1);
  std::size_t at = 0, bit = 0;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const auto keep = static_cast<std::size_t>(chunks_[c].keep);
    float scale = 0;
    for (std::size_t i = at; i < at + keep; ++i) scale = std::max(scale, std::abs(last_.values[i]));
    std::memcpy(scales.data() + 4 * c, &scale, 4);
    for (const std::size_t end = at + keep; at < end; ++at) {
      const float share = scale > 0 ? last_.values[at] / scale : 0;
      const auto code = static_cast<std::uint32_t>(
          std::clamp(std::floor((share * most + most) / 2 + 0.5F), 0.0F, most));
      for (int b = 0; b < bits_; ++b, ++bit)
        codes[bit / 8] |= static_cast<std::uint8_t>(((code >> b) & 1U) << (bit % 8));
      last_.values[at] = level_of(code, scale, bits_);
    }
  }
}

void ChunkPayload::unpack(std::span<const std::uint8_t> packed, kernels::Selection& out) const {
  const auto kept = static_cast<std::size_t>(kept_of(chunks_));
  out.indices.resize(kept);
  out.values.resize(kept);
  if (kept == 0) return;
  const auto codes =
      static_cast<std::size_t>(bytes_of_bits(static_cast<std::int64_t>(kept) * bits_));
  const std::size_t scales = bits_ == 32 ? 0 : 4 * chunks_.size();
  kernels::unpack_indices(packed.subspan(codes + scales), values(), out.indices);
  if (bits_ == 32) {
    std::memcpy(out.values.data(), packed.data(), codes);
    return;
  }
  std::vector<float> scale(chunks_.size());
  std::memcpy(scale.data(), packed.data() + codes, scales);
  for (const float one : scale)
    if (!std::isfinite(one) || one < 0)
      throw DataError(
          fmt::format("{}: a scale must be finite and at least 0, got {}", codec_, one));
  std::size_t chunk = 0, bit = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    while (out.indices[i] >= chunks_[chunk].begin + chunks_[chunk].count) ++chunk;
    std::uint32_t code = 0;
    for (int b = 0; b < bits_; ++b, ++bit)
      code |= static_cast<std::uint32_t>((packed[bit / 8] >> (bit % 8)) & 1) << b;
    out.values[i] = level_of(code, scale[chunk], bits_);
  }
}

void ChunkSum::begin(std::span<float> sum, bool senders) {
  sum_ = sum;
  senders_ = senders;
  std::fill(sum.begin(), sum.end(), 0.0F);
  if (senders) counts_.assign(sum.size(), 0);
}

void ChunkSum::add(const kernels::Selection& sent) {
  kernels::decode_sparse(sent.indices, sent.values, sum_, Write::add);
  if (senders_)
    for (const std::uint32_t index : sent.indices) ++counts_[index];
}

void ChunkSum::end(int divisor) {
  if (divisor == 1) return;
  for (std::size_t i = 0; i < sum_.size(); ++i)
    sum_[i] /= static_cast<float>(senders_ ? std::max(counts_[i], 1) : divisor);
}

}  // namespace thinwire
