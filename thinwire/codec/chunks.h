// SPDX-License-Identifier: Apache-2.0
// Payloads of the largest values of each chunk of a bucket: no torch.
//   values: of all chunks in order, 4 bytes each, or `bits` of them, least significant first; then,
//           with bits, a scale of 4 bytes a chunk: value = scale (2 q - L) / L, L = 2^bits - 1
//   positions: position_bytes(n, kept), of all chunks together
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/codec/kernels/select.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {

struct Chunk {
  std::int64_t begin = 0, count = 0, keep = 0;
};

inline std::int64_t kept_of(std::span<const Chunk> chunks) {
  std::int64_t kept = 0;
  for (const Chunk& chunk : chunks) kept += chunk.keep;
  return kept;
}

inline Bytes chunk_payload_bytes(std::span<const Chunk> chunks, int bits) {
  if (chunks.empty()) return 0;
  const std::int64_t kept = kept_of(chunks), n = chunks.back().begin + chunks.back().count;
  const Bytes scales = bits == 32 ? 0 : 4 * static_cast<Bytes>(chunks.size());
  return bytes_of_bits(kept * bits) + scales + position_bytes(n, kept);
}

/// 32, or 2 to 8.
inline int read_chunk_bits(SpecReader& reader, const std::string& codec, std::int64_t standard) {
  const std::int64_t bits = reader.integer("bits", standard);
  if (bits != 32 && (bits < 2 || bits > 8))
    throw ConfigError(fmt::format("{}: bits must be 32, or in [2, 8], got {}", codec, bits));
  return static_cast<int>(bits);
}

/// Whether a value is the mean of the ranks that have sent it ("senders"), or of all.
inline bool read_chunk_average(SpecReader& reader, const std::string& codec,
                               const std::string& standard) {
  const std::string average = reader.text("average", standard);
  if (average != "all" && average != "senders")
    throw ConfigError(fmt::format("{}: average must be all or senders, got '{}'", codec, average));
  return average == "senders";
}

class ChunkPayload {
 public:
  ChunkPayload(std::string codec, std::vector<Chunk> chunks, int bits)
      : codec_(std::move(codec)), chunks_(std::move(chunks)), bits_(bits) {}
  Bytes bytes() const { return chunk_payload_bytes(chunks_, bits_); }
  std::int64_t values() const {
    return chunks_.empty() ? 0 : chunks_.back().begin + chunks_.back().count;
  }
  /// Writes bytes() bytes.
  void pack(std::span<const float> x, std::span<std::uint8_t> out);
  /// Of what was packed last: positions, and the values that others will see there.
  const kernels::Selection& last() const { return last_; }
  /// DataError for what pack() does not make. `packed` has bytes() bytes.
  void unpack(std::span<const std::uint8_t> packed, kernels::Selection& out) const;

 private:
  void quantise(std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);
  std::string codec_;
  std::vector<Chunk> chunks_;
  int bits_;
  kernels::TopK select_;
  kernels::Selection of_chunk_, last_;
};

/// Adds values of several payloads up in rank order: sum[i] / the number of ranks that have sent
/// it, or / divisor. `sum` has values() elements.
class ChunkSum {
 public:
  void begin(std::span<float> sum, bool senders);
  void add(const kernels::Selection& sent);
  void end(int divisor);

 private:
  std::span<float> sum_;
  bool senders_ = false;
  std::vector<std::int32_t> counts_;
};

}  // namespace thinwire
