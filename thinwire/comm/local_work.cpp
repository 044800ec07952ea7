// SPDX-License-Identifier: Apache-2.0
// The work of a collective once all ranks are there: plain copies and sums in rank order.
#include <algorithm>

#include "thinwire/comm/local_hub.h"
#include "thinwire/comm/reduce.h"

namespace thinwire {
namespace {

constexpr Bytes kRunBytes =
    128 * 1024;  // a block that stays in a core's cache between reading and copying

std::byte* at(const Buffer& buffer, std::int64_t element) {
  return static_cast<std::byte*>(buffer.data) + element * dtype_bytes(buffer.dtype);
}

void run_all_reduce(std::vector<LocalPart>& parts, std::vector<const void*>& sources) {
  const Buffer& first = parts[0].out;
  if (parts.size() == 1) return;
  const std::int64_t block = kRunBytes / dtype_bytes(first.dtype);
  for (std::int64_t done = 0; done < first.count; done += block) {
    const std::int64_t n = std::min(block, first.count - done);
    for (std::size_t r = 0; r < parts.size(); ++r) sources[r] = at(parts[r].out, done);
    combine(at(first, done), sources, n, first.dtype, parts[0].signature.op);
    for (std::size_t r = 1; r < parts.size(); ++r)
      move_bytes(at(parts[r].out, done), at(first, done), n * dtype_bytes(first.dtype));
  }
}

void run_reduce_scatter(std::vector<LocalPart>& parts, std::vector<const void*>& sources) {
  if (parts.size() == 1)
    return move_bytes(parts[0].out.data, parts[0].in.data, parts[0].out.bytes());
  for (std::size_t to = 0; to < parts.size(); ++to) {
    const Buffer& out = parts[to].out;
    for (std::size_t r = 0; r < parts.size(); ++r)
      sources[r] = at(parts[r].in, static_cast<std::int64_t>(to) * out.count);
    combine(out.data, sources, out.count, out.dtype, parts[0].signature.op);
  }
}

void run_all_gather(std::vector<LocalPart>& parts) {
  for (const LocalPart& to : parts)
    for (std::size_t r = 0; r < parts.size(); ++r)
      move_bytes(at(to.out, static_cast<std::int64_t>(r) * to.in.count), parts[r].in.data,
                 parts[r].in.bytes());
}

void run_all_to_all(std::vector<LocalPart>& parts) {
  for (std::size_t from = 0; from < parts.size(); ++from) {
    std::int64_t offset = 0;
    for (std::size_t to = 0; to < parts.size(); ++to) {
      const auto& counts = parts[to].out_counts;
      std::int64_t into = 0;
      for (std::size_t r = 0; r < from; ++r) into += counts[r];
      move_bytes(at(parts[to].out, into), at(parts[from].in, offset),
                 counts[from] * dtype_bytes(parts[to].out.dtype));
      offset += parts[from].in_counts[to];
    }
  }
}

void run_broadcast(std::vector<LocalPart>& parts) {
  const Buffer& root = parts[static_cast<std::size_t>(parts[0].signature.root)].out;
  for (const LocalPart& part : parts) move_bytes(part.out.data, root.data, root.bytes());
}

}  // namespace

void LocalHub::run(LocalCall& call) {
  switch (call.parts[0].signature.kind) {
    case CallKind::all_reduce:
      return run_all_reduce(call.parts, call.sources);
    case CallKind::reduce_scatter:
      return run_reduce_scatter(call.parts, call.sources);
    case CallKind::all_gather:
      return run_all_gather(call.parts);
    case CallKind::all_to_all:
      return run_all_to_all(call.parts);
    case CallKind::broadcast:
      return run_broadcast(call.parts);
    default:
      return;
  }
}

}  // namespace thinwire
