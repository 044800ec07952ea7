// SPDX-License-Identifier: Apache-2.0
// The largest values of each chunk, in a few bits each.
// Sarfi, Therien, Lidin, Belilovsky, "Communication Efficient LLM Pre-training with SparseLoCo"
// (2025), arXiv 2508.15706.
// Update rule: of each `chunk` consecutive values of a tensor send the `count` of largest |x|, as
// the nearest of 2^bits evenly spaced levels from -s to s, s the largest of the chunk; bits=2: s/3
// times -3, -1, 1, 3. average=all: divided by all ranks; senders: by those that have sent a value.
// Bytes: see chunks.h; 64 of 4,096 with 2 bits are 84 bytes a chunk, 0.16 bits a value.
// Passes over memory: one that selects; the residual touches what was sent.
// Departs from the paper: positions of a bucket are coded together, with 8 bits each, not 12; a
// chunk is 4,096 values in a row, not a block of 64 x 64. The last chunk of a tensor is shorter,
// and keeps as much of it.
#include "thinwire/codec/chunks.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

struct ChunkTopKOptions {
  std::vector<Chunk> chunks;
  int bits = 2;
  bool senders = false;
};

inline ChunkTopKOptions read_chunk_topk(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  ChunkTopKOptions out;
  const std::int64_t extent = reader.integer("chunk", 4096), count = reader.integer("count", 64);
  out.bits = read_chunk_bits(reader, "chunk_topk", 2);
  out.senders = read_chunk_average(reader, "chunk_topk", "all");
  reader.finish();
  if (extent < 1 || extent > (1 << 24))
    throw ConfigError(fmt::format("chunk_topk: chunk must be in [1, 2^24], got {}", extent));
  if (count < 1 || count > extent)
    throw ConfigError(
        fmt::format("chunk_topk: count must be in [1, chunk = {}], got {}", extent, count));
  std::int64_t begin = 0;
  for (const TensorDesc& tensor : tensors)
    for (std::int64_t left = value_count(tensor); left > 0;) {
      const std::int64_t size = std::min(left, extent);
      out.chunks.push_back({begin, size, std::max<std::int64_t>(1, count * size / extent)});
      begin += size;
      left -= size;
    }
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_chunk_topk(PayloadRegistry& registry) {
  registry.add(
      "chunk_topk",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        const ChunkTopKOptions options = read_chunk_topk(spec, tensors);
        return chunk_payload_bytes(options.chunks, options.bits);
      },
      "the largest values of each chunk, in bits {chunk=4096, count=64, bits=2, average=all}");
}

}  // namespace thinwire
#else
#include <ATen/ops/copy.h>

#include "thinwire/codec/bytes.h"

namespace thinwire {
namespace {

class ChunkTopK : public Codec {
 public:
  explicit ChunkTopK(ChunkTopKOptions options)
      : senders_(options.senders), chunks_("chunk_topk", options.chunks, options.bits) {
    const std::int64_t n = chunks_.values();
    // Of equal values; with bits a value is off by no more than the largest of its chunk / L.
    contraction_ = 1;
    for (const Chunk& chunk : options.chunks)
      contraction_ = std::min(contraction_,
                              static_cast<double>(chunk.keep) / static_cast<double>(chunk.count));
    if (options.bits != 32 || n == 0) contraction_ = 0;
  }
  CodecTraits traits() const override { return {.fixed_size = true, .contraction = contraction_}; }
  Bytes max_bytes() const override { return chunks_.bytes(); }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, max_bytes(), x);
    chunks_.pack(floats_of(x), section(out, 0, max_bytes()));
    return {.parts = {out}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    kernels::Selection sent;
    unpack(payload, sent);
    decode_single(out, chunks_.values(), mode, [&](Tensor& to, Write how) {
      kernels::decode_sparse(sent.indices, sent.values, floats_in(to), how);
    });
  }
  void combine(std::span<const Payload> payloads, int divisor, Tensor& out) override {
    decode_single(out, chunks_.values(), Write::set, [&](Tensor& to, Write) {
      sum_.begin(floats_in(to), senders_);
      kernels::Selection sent;
      for (const Payload& payload : payloads) {
        unpack(payload, sent);
        sum_.add(sent);
      }
      sum_.end(divisor);
    });
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (!is_last(sent) || x.scalar_type() != at::kFloat) return Codec::residual(x, sent, out);
    if (!out.is_same(x)) out.copy_(x);
    const auto values = floats_in(out);
    const kernels::Selection& last = chunks_.last();
    for (std::size_t i = 0; i < last.indices.size(); ++i) values[last.indices[i]] -= last.values[i];
  }
  void forget(const Payload& sent, Tensor& x) const override {
    if (!is_last(sent) || x.scalar_type() != at::kFloat) return Codec::forget(sent, x);
    kernels::zero_at(floats_in(x), chunks_.last().indices);
  }

 private:
  bool is_last(const Payload& sent) const {
    return payload_.defined() && sent.parts.at(0).data_ptr() == payload_.data_ptr();
  }
  void unpack(const Payload& payload, kernels::Selection& out) const {
    const Tensor& bytes = checked_bytes("chunk_topk", payload, max_bytes());
    chunks_.unpack(section(bytes, 0, max_bytes()), out);
  }
  bool senders_;
  double contraction_ = 0;
  ChunkPayload chunks_;
  ChunkSum sum_;
  Tensor payload_;
};

}  // namespace

void register_chunk_topk(CodecRegistry& registry) {
  registry.add("chunk_topk", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    return std::make_unique<ChunkTopK>(read_chunk_topk(spec, tensors));
  });
}

}  // namespace thinwire
#endif
