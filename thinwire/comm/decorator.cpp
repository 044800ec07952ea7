// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/decorator.h"

namespace thinwire {

Handle Decorator::all_reduce(MessageId id, Buffer data, Combine op) {
  return pass({{CallKind::all_reduce, id, data.dtype, data.count, op},
               data,
               traffic(CallKind::all_reduce, data.bytes(), size())},
              [&] { return inner_->all_reduce(id, data, op); });
}

Handle Decorator::reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) {
  return pass({{CallKind::reduce_scatter, id, out.dtype, out.count, op},
               in,
               traffic(CallKind::reduce_scatter, in.bytes(), size())},
              [&] { return inner_->reduce_scatter(id, out, in, op); });
}

Handle Decorator::all_gather(MessageId id, Buffer out, Buffer in) {
  return pass({{CallKind::all_gather, id, in.dtype, in.count},
               in,
               traffic(CallKind::all_gather, in.bytes(), size())},
              [&] { return inner_->all_gather(id, out, in); });
}

Handle Decorator::all_to_all(MessageId id, Buffer out, Buffer in,
                             std::span<const std::int64_t> out_counts,
                             std::span<const std::int64_t> in_counts) {
  // Counts of the wrong length are the transport's to refuse.
  const auto ranks = static_cast<std::size_t>(size());
  const Traffic moved =
      out_counts.size() == ranks && in_counts.size() == ranks
          ? all_to_all_traffic(out_counts, in_counts, rank(), dtype_bytes(in.dtype))
          : Traffic{};
  return pass({{CallKind::all_to_all, id, in.dtype, in.count}, in, moved},
              [&] { return inner_->all_to_all(id, out, in, out_counts, in_counts); });
}

Handle Decorator::broadcast(MessageId id, Buffer data, Rank root) {
  const bool mine = root == rank();
  return pass({{CallKind::broadcast, id, data.dtype, data.count, Combine::replace, root},
               mine ? data : Buffer{},
               traffic(CallKind::broadcast, data.bytes(), size(), mine)},
              [&] { return inner_->broadcast(id, data, root); });
}

Handle Decorator::send(MessageId id, Buffer data, Rank to) {
  return pass({{CallKind::send, id, data.dtype, data.count, Combine::replace, to},
               data,
               traffic(CallKind::send, data.bytes(), size())},
              [&] { return inner_->send(id, data, to); });
}

Handle Decorator::recv(MessageId id, Buffer data, std::optional<Rank> from) {
  return pass({{CallKind::recv, id, data.dtype, data.count, Combine::replace, from.value_or(-1)},
               Buffer{},
               traffic(CallKind::recv, data.bytes(), size())},
              [&] { return inner_->recv(id, data, from); });
}

}  // namespace thinwire
