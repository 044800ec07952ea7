// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/signature.h"

#include <fmt/format.h>

#include <numeric>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

void check_same_dtype(CallKind kind, const Buffer& out, const Buffer& in) {
  if (out.dtype != in.dtype)
    throw ConfigError(fmt::format("{}: out and in must have one dtype, got {} and {}",
                                  to_string(kind), to_string(out.dtype), to_string(in.dtype)));
}

void check_counts(std::string_view what, const Buffer& buffer, std::span<const std::int64_t> counts,
                  int ranks) {
  if (static_cast<int>(counts.size()) != ranks)
    throw ConfigError(fmt::format("all_to_all: {}_counts must have one entry a rank, {}, got {}",
                                  what, ranks, counts.size()));
  for (const std::int64_t count : counts)
    if (count < 0)
      throw ConfigError(
          fmt::format("all_to_all: {}_counts must not be negative, got {}", what, count));
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total != buffer.count)
    throw ConfigError(fmt::format("all_to_all: {}_counts must sum to the {} elements of {}, got {}",
                                  what, buffer.count, what, total));
}

}  // namespace

std::string describe(const Signature& call) {
  std::string text = describe(call.kind, call.id);
  if (call.kind == CallKind::barrier) return text;
  if (call.kind == CallKind::all_to_all) return text + fmt::format(" ({})", to_string(call.dtype));
  text += fmt::format(" ({} {}, {} bytes", call.count, to_string(call.dtype),
                      call.count * dtype_bytes(call.dtype));
  if (call.op != Combine::replace) text += fmt::format(", {}", to_string(call.op));
  if (call.kind == CallKind::send || call.kind == CallKind::recv) {
    const std::string peer = call.root < 0 ? "any rank" : fmt::format("rank {}", call.root);
    text += fmt::format(", {} {}", call.kind == CallKind::send ? "to" : "from", peer);
  } else if (call.root >= 0) {
    text += fmt::format(", root {}", call.root);
  }
  return text + ")";
}

std::string mismatch(Rank a, const Signature& call_a, Rank b, const Signature& call_b) {
  return fmt::format("the ranks disagree: rank {} started {}, but rank {} started {}", a,
                     describe(call_a), b, describe(call_b));
}

std::string uneven(const Signature& call, Rank from, std::int64_t sends, Rank to,
                   std::int64_t expects) {
  const Bytes each = dtype_bytes(call.dtype);
  return fmt::format(
      "{}: rank {} sends {} elements ({} bytes) to rank {}, which expects {} ({} bytes)",
      describe(call), from, sends, sends * each, to, expects, expects * each);
}

void check_host(CallKind kind, const Buffer& buffer, std::string_view transport) {
  if (buffer.device >= 0)
    throw UnsupportedError(fmt::format("{}: {} takes host memory only, got device {}",
                                       to_string(kind), transport, buffer.device));
  if (buffer.count < 0)
    throw ConfigError(
        fmt::format("{}: count must not be negative, got {}", to_string(kind), buffer.count));
}

void check_reduce_scatter(const Buffer& out, const Buffer& in, int ranks) {
  check_same_dtype(CallKind::reduce_scatter, out, in);
  if (in.count != out.count * ranks)
    throw ConfigError(fmt::format("reduce_scatter: in must have {} times out's {} elements, got {}",
                                  ranks, out.count, in.count));
}

void check_all_gather(const Buffer& out, const Buffer& in, int ranks) {
  check_same_dtype(CallKind::all_gather, out, in);
  if (out.count != in.count * ranks)
    throw ConfigError(fmt::format("all_gather: out must have {} times in's {} elements, got {}",
                                  ranks, in.count, out.count));
}

void check_all_to_all(const Buffer& out, const Buffer& in, std::span<const std::int64_t> out_counts,
                      std::span<const std::int64_t> in_counts, Rank rank, int ranks) {
  check_same_dtype(CallKind::all_to_all, out, in);
  check_counts("out", out, out_counts, ranks);
  check_counts("in", in, in_counts, ranks);
  const auto own = static_cast<std::size_t>(rank);
  if (out_counts[own] != in_counts[own])
    throw ConfigError(fmt::format(
        "all_to_all: out_counts and in_counts of the own rank must be equal, got {} and {}",
        out_counts[own], in_counts[own]));
}

void check_rank(CallKind kind, std::string_view what, Rank rank, int ranks) {
  if (rank < 0 || rank >= ranks)
    throw ConfigError(fmt::format("{}: {} must be a rank in [0, {}), got {}", to_string(kind), what,
                                  ranks, rank));
}

}  // namespace thinwire
