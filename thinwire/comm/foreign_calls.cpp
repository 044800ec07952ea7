// SPDX-License-Identifier: Apache-2.0
// reduce_scatter: all_to_all of the parts, then a sum in rank order. all_reduce of a type that the
// library cannot sum: the same with shards, then everybody's shard to everybody.
#include "thinwire/comm/foreign_calls.h"

#include <cstring>
#include <numeric>

#include "thinwire/comm/reduce.h"
#include "thinwire/core/half.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

std::vector<std::int64_t> shard_counts(std::int64_t count, int ranks) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(ranks), count / ranks);
  for (std::int64_t r = 0; r < count % ranks; ++r) ++out[static_cast<std::size_t>(r)];
  return out;
}

Buffer over(std::vector<std::byte>& memory, std::int64_t count, DType dtype) {
  memory.resize(static_cast<std::size_t>(count * dtype_bytes(dtype)));
  return {memory.data(), count, dtype};
}

void copy_in(const Buffer& to, const Buffer& from) {
  if (from.count > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
}

/// `parts` blocks of `count` elements one behind the other, combined into out.
void combine_blocks(void* out, const std::vector<std::byte>& blocks, std::int64_t count, int parts,
                    DType dtype, Combine op) {
  std::vector<const void*> sources;
  for (int r = 0; r < parts; ++r) sources.push_back(blocks.data() + r * count * dtype_bytes(dtype));
  combine(out, sources, count, dtype, op);
}

template <class T>
void divide_as(void* data, std::int64_t count, int ranks) {
  auto* values = static_cast<T*>(data);
  for (std::int64_t i = 0; i < count; ++i) values[i] /= static_cast<T>(ranks);
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Narrow)(float)>
void divide_half(void* data, std::int64_t count, int ranks) {
  auto* values = static_cast<std::uint16_t*>(data);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = Narrow(Widen(values[i]) / static_cast<float>(ranks));
}

}  // namespace

void divide(Buffer data, int ranks) {
  switch (data.dtype) {
    case DType::f64:
      return divide_as<double>(data.data, data.count, ranks);
    case DType::f32:
      return divide_as<float>(data.data, data.count, ranks);
    case DType::c64:
      return divide_as<float>(data.data, 2 * data.count, ranks);
    case DType::c128:
      return divide_as<double>(data.data, 2 * data.count, ranks);
    case DType::f16:
      return divide_half<f16_to_f32, f32_to_f16>(data.data, data.count, ranks);
    case DType::bf16:
      return divide_half<bf16_to_f32, f32_to_bf16>(data.data, data.count, ranks);
    default:
      return;
  }
}

std::int32_t tag_of(const MessageId& id, int bits) {
  const std::int64_t words[3]{id.exchange, id.step, id.part};
  return static_cast<std::int32_t>(hash_bytes(words, sizeof words) &
                                   ((std::uint64_t{1} << bits) - 1));
}

StagedCall::StagedCall(ForeignOps& ops, ForeignRequest request)
    : ops_(ops), request_(std::move(request)) {
  stage();
  if (stage_ != Stage::scatter) call_ = ops_.start(staged_);
}

void StagedCall::stage() {
  const Signature& s = request_.signature;
  staged_ = request_;
  switch (s.kind) {
    case CallKind::all_reduce:
      if (!ops_.sums(s.dtype, s.op == Combine::mean ? Combine::sum : s.op)) return start_sharded();
      if (s.op == Combine::mean) staged_.signature.op = Combine::sum;
      [[fallthrough]];
    case CallKind::broadcast:
      staged_.out = staged_.in = over(out_, s.count, s.dtype);
      return copy_in(staged_.out, request_.in);
    case CallKind::reduce_scatter:
      return start_sharded();
    case CallKind::recv:
      staged_.out = over(out_, s.count, s.dtype);
      return;
    default:  // all_gather, all_to_all, send
      staged_.in = over(in_, request_.in.count, s.dtype);
      copy_in(staged_.in, request_.in);
      staged_.out = over(out_, request_.out.count, s.dtype);
  }
}

/// Stage one: everybody's part for rank r goes to rank r.
void StagedCall::start_sharded() {
  const Signature& s = request_.signature;
  const int n = ops_.size();
  const auto own = static_cast<std::size_t>(ops_.rank());
  staged_.signature = {CallKind::all_to_all, s.id, s.dtype};
  staged_.in = over(in_, request_.in.count, s.dtype);
  copy_in(staged_.in, request_.in);
  staged_.in_counts = shard_counts(request_.in.count, n);  // reduce_scatter: even by its own rule
  staged_.out_counts.assign(static_cast<std::size_t>(n), staged_.in_counts[own]);
  staged_.out = over(shards_, n * staged_.in_counts[own], s.dtype);
  stage_ = Stage::scatter;
  call_ = ops_.start(staged_);
}

bool StagedCall::next_stage() {
  const Signature& s = request_.signature;
  const int n = ops_.size();
  const auto own = static_cast<std::size_t>(ops_.rank());
  const std::int64_t mine = staged_.in_counts[own];
  if (s.kind == CallKind::reduce_scatter) {
    combine_blocks(over(out_, mine, s.dtype).data, shards_, mine, n, s.dtype, s.op);
    stage_ = Stage::plain;
    return true;
  }
  // Stage two: my shard of the sum to everybody; the library wants one copy for each.
  const std::vector<std::int64_t> counts = staged_.in_counts;
  staged_.in = over(in_, n * mine, s.dtype);
  combine_blocks(staged_.in.data, shards_, mine, n, s.dtype, s.op);
  const Bytes bytes = mine * dtype_bytes(s.dtype);
  for (int r = 1; r < n && bytes > 0; ++r)
    std::memcpy(in_.data() + r * bytes, in_.data(), static_cast<std::size_t>(bytes));
  staged_.in_counts.assign(static_cast<std::size_t>(n), mine);
  staged_.out_counts = counts;
  staged_.out = over(out_, request_.out.count, s.dtype);
  stage_ = Stage::gather;
  call_ = ops_.start(staged_);
  return false;
}

bool StagedCall::ready() {
  if (!call_->ready()) return false;
  return stage_ != Stage::scatter || next_stage();
}

void StagedCall::finish() {
  const Signature& s = request_.signature;
  if (s.kind == CallKind::send || (s.kind == CallKind::broadcast && s.root == ops_.rank())) return;
  const Buffer result{out_.data(), request_.out.count, s.dtype};
  if (s.kind == CallKind::all_reduce && s.op == Combine::mean && stage_ == Stage::plain)
    divide(result, ops_.size());
  copy_in(request_.out, result);
}

}  // namespace thinwire
