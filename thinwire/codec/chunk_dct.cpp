// SPDX-License-Identifier: Apache-2.0
// The largest coefficients of the cosine transform of each block.
// Peng, Chen, Su, Quesnelle, Kingma, Liu, "DeMo: Decoupled Momentum Optimization", ICLR 2026, arXiv
// 2411.19870.
// Update rule: a matrix is cut into blocks of a x b, the largest divisors of its extents up to
// `chunk`; C = D(a) X D(b)', D the orthonormal DCT-II; send the `count` coefficients of largest
// |C|; value = D(a)' C D(b) of their averages. average=senders: of the ranks that have sent a
// coefficient; all: of all.
// Bytes: see chunks.h; 32 of 64 x 64 are 164 bytes a block.
// Passes over memory: the transform works in the cache, 2 (a + b) operations a value, forward once,
// backward once for what was sent and once for the sum of all ranks.
// Departs from the paper: positions of a bucket are coded together, with about 9 bits, not 64; the
// momentum is a memory's: demo|chunk_dct. A tensor of more than two dimensions is a matrix of its
// first extent times the rest; one of fewer has blocks of one row.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/codec/chunks.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// A tensor in blocks of block_rows x block_columns.
struct BlockedMatrix {
  std::int64_t begin = 0, rows = 1, columns = 1, block_rows = 1, block_columns = 1;
};

struct ChunkDctOptions {
  std::vector<BlockedMatrix> matrices;
  std::vector<Chunk> chunks;  ///< one a block, in the order of coefficients
  int bits = 32;
  bool senders = true;
};

inline std::int64_t largest_divisor(std::int64_t extent, std::int64_t most) {
  for (std::int64_t d = std::min(extent, most); d > 1; --d)
    if (extent % d == 0) return d;
  return 1;
}

inline ChunkDctOptions read_chunk_dct(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  ChunkDctOptions out;
  const std::int64_t side = reader.integer("chunk", 64), count = reader.integer("count", 32);
  out.bits = read_chunk_bits(reader, "chunk_dct", 32);
  out.senders = read_chunk_average(reader, "chunk_dct", "senders");
  reader.finish();
  if (side < 1 || side > 1024)
    throw ConfigError(fmt::format("chunk_dct: chunk must be in [1, 1024], got {}", side));
  if (count < 1)
    throw ConfigError(fmt::format("chunk_dct: count must be at least 1, got {}", count));
  std::int64_t begin = 0;
  for (const TensorDesc& tensor : tensors) {
    const std::int64_t total = value_count(tensor);
    if (total == 0) continue;
    BlockedMatrix one{.begin = begin, .columns = total};
    if (tensor.shape.size() > 1 && !is_complex(tensor.dtype)) {
      one.rows = tensor.shape[0];
      one.columns = total / one.rows;
    }
    one.block_rows = largest_divisor(one.rows, side);
    one.block_columns = largest_divisor(one.columns, side);
    const std::int64_t size = one.block_rows * one.block_columns;
    out.matrices.push_back(one);
    for (std::int64_t at = 0; at < total; at += size)
      out.chunks.push_back({begin + at, size, std::min(count, size)});
    begin += total;
  }
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_chunk_dct(PayloadRegistry& registry) {
  registry.add(
      "chunk_dct",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        const ChunkDctOptions options = read_chunk_dct(spec, tensors);
        return chunk_payload_bytes(options.chunks, options.bits);
      },
      "the largest cosine coefficients of each block {chunk=64, count=32, bits=32, "
      "average=senders}");
}

}  // namespace thinwire
#else
#include <ATen/ops/copy.h>

#include <map>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/dct.h"

namespace thinwire {
namespace {

class ChunkDct : public Codec {
 public:
  explicit ChunkDct(ChunkDctOptions options)
      : senders_(options.senders),
        matrices_(std::move(options.matrices)),
        chunks_("chunk_dct", std::move(options.chunks), options.bits) {
    for (const BlockedMatrix& one : matrices_)
      transforms_.try_emplace({one.block_rows, one.block_columns}, one.block_rows,
                              one.block_columns);
  }
  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return chunks_.bytes(); }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, max_bytes(), x);
    coefficients_.resize(static_cast<std::size_t>(chunks_.values()));
    const float* from = floats_of(x).data();
    each_block(
        [&](kernels::BlockDct& dct, std::int64_t at, std::int64_t place, std::int64_t stride) {
          dct.forward(from + at, stride, coefficients_.data() + place);
        });
    chunks_.pack(coefficients_, section(out, 0, max_bytes()));
    return {.parts = {out}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    std::vector<float> sum(static_cast<std::size_t>(chunks_.values()), 0.0F);
    kernels::Selection sent;
    unpack(payload, sent);
    kernels::decode_sparse(sent.indices, sent.values, sum, Write::set);
    decode_single(out, chunks_.values(), mode, [&](Tensor& to, Write how) {
      if (how == Write::set) return inverse(sum, floats_in(to));
      std::vector<float> value(sum.size());
      inverse(sum, value);
      const auto place = floats_in(to);
      for (std::size_t i = 0; i < value.size(); ++i) place[i] += value[i];
    });
  }
  void combine(std::span<const Payload> payloads, int divisor, Tensor& out) override {
    coefficients_.resize(static_cast<std::size_t>(chunks_.values()));
    sum_.begin(coefficients_, senders_);
    kernels::Selection sent;
    for (const Payload& payload : payloads) {
      unpack(payload, sent);
      sum_.add(sent);
    }
    sum_.end(divisor);
    decode_single(out, chunks_.values(), Write::set,
                  [&](Tensor& to, Write) { inverse(coefficients_, floats_in(to)); });
  }

 private:
  /// fn(transform, where the block begins in the bucket, and among coefficients, its stride).
  template <class Fn>
  void each_block(const Fn& fn) const {
    std::int64_t place = 0;
    for (const BlockedMatrix& one : matrices_) {
      kernels::BlockDct& dct = transforms_.at({one.block_rows, one.block_columns});
      for (std::int64_t r = 0; r < one.rows; r += one.block_rows)
        for (std::int64_t c = 0; c < one.columns; c += one.block_columns) {
          fn(dct, one.begin + r * one.columns + c, place, one.columns);
          place += one.block_rows * one.block_columns;
        }
    }
  }
  void inverse(std::span<const float> coefficients, std::span<float> out) const {
    each_block(
        [&](kernels::BlockDct& dct, std::int64_t at, std::int64_t place, std::int64_t stride) {
          dct.inverse(coefficients.data() + place, out.data() + at, stride);
        });
  }
  void unpack(const Payload& payload, kernels::Selection& out) const {
    const Tensor& bytes = checked_bytes("chunk_dct", payload, max_bytes());
    chunks_.unpack(section(bytes, 0, max_bytes()), out);
  }

  bool senders_;
  std::vector<BlockedMatrix> matrices_;
  /// Their rooms are written to; an exchange uses its codec from one thread.
  mutable std::map<std::pair<std::int64_t, std::int64_t>, kernels::BlockDct> transforms_;
  ChunkPayload chunks_;
  ChunkSum sum_;
  std::vector<float> coefficients_;
  Tensor payload_;
};

}  // namespace

void register_chunk_dct(CodecRegistry& registry) {
  registry.add("chunk_dct", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    return std::make_unique<ChunkDct>(read_chunk_dct(spec, tensors));
  });
}

}  // namespace thinwire
#endif
