// SPDX-License-Identifier: Apache-2.0
// shard: rank r owns the r-th part of the elements. Everybody sends each owner its part
// (all_to_all), the owner reduces the payloads in rank order, and sends the result to everybody.
// The second message leaves when the first exchange is waited for, so that all ranks start it at
// the same place of their order. Bytes a rank sends: 2 P (n-1)/n with equal parts.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "thinwire/exchange/call.h"

namespace thinwire {
namespace shard_stages {
namespace {

/// The first element of rank's part.
std::int64_t begin_of(std::int64_t elements, int rank, int ranks) {
  return elements * rank / ranks;
}

Tensor part_of(const Tensor& flat, int rank, int ranks) {
  const std::int64_t begin = begin_of(flat.numel(), rank, ranks);
  return flat.narrow(0, begin, begin_of(flat.numel(), rank + 1, ranks) - begin);
}

DType real_type(const std::vector<TensorDesc>& descs) {
  if (descs.empty() || descs[0].dtype == DType::c64) return DType::f32;
  return descs[0].dtype == DType::c128 ? DType::f64 : descs[0].dtype;
}

std::string prepare(Call& call) {
  const CodecTraits traits = call.codec->traits();
  if (traits.merges) return "this form needs a sum in the transport";
  if (!traits.fixed_size) return "payloads whose size depends on their values are not built in";
  if (keeps_tensors(*call.codec))
    return "this form keeps state, which would be split between the owners of parts";
  if (!call.group) return {};
  const std::int64_t elements = value_count(call.descs);
  const int ranks = call.group->size();
  for (int rank = 0; rank < ranks; ++rank)
    call.shard_codecs.push_back(
        make_codec(*call.exchange,
                   {{fmt::format("part {} of {}", rank, ranks),
                     real_type(call.descs),
                     {begin_of(elements, rank + 1, ranks) - begin_of(elements, rank, ranks)}}}));
  return {};
}

std::vector<std::int64_t> part_sizes(const Call& call, std::size_t part) {
  std::vector<std::int64_t> sizes;
  for (const Payload& payload : call.own) sizes.push_back(payload.parts[part].numel());
  return sizes;
}

/// A flat tensor with the p-th parts of these payloads behind each other.
Tensor joined(const std::vector<Payload>& payloads, std::size_t part) {
  std::vector<Tensor> pieces;
  for (const Payload& payload : payloads) pieces.push_back(payload.parts[part].reshape({-1}));
  return at::cat(pieces);
}

void start(Call& call) {
  const int ranks = call.group->size(), own = call.group->rank();
  call.own.clear();
  call.arrived.clear();
  call.handles.clear();
  std::vector<Sent::Part> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    Codec& codec = *call.shard_codecs[static_cast<std::size_t>(rank)];
    const std::int64_t begin = begin_of(call.x.numel(), rank, ranks);
    const std::int64_t count = begin_of(call.x.numel(), rank + 1, ranks) - begin;
    call.own.push_back(encode(call, codec, begin, count));
    call.payload += call.own.back().bytes();
    parts.push_back({&codec, nullptr, begin, count});
  }
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].payload = &call.own[i];
  for (std::size_t p = 0; p < call.own[0].parts.size(); ++p) {
    const auto sizes = part_sizes(call, p);
    const std::int64_t mine = sizes[static_cast<std::size_t>(own)];
    // Kept in `arrived` beside what arrives: both live until the message is there.
    call.arrived.push_back(joined(call.own, p));
    call.arrived.push_back(at::empty({mine * ranks}, call.arrived.back().options()));
    const std::vector<std::int64_t> out_counts(static_cast<std::size_t>(ranks), mine);
    call.handles.push_back(
        call.group->all_to_all(call.next_message(), buffer_of(call.arrived[2 * p + 1]),
                               buffer_of(call.arrived[2 * p]), out_counts, sizes));
  }
  tell_sent(call, Sent(std::move(parts)));
  call.more = true;
}

/// This rank's part of the result as a payload.
Payload reduced(Call& call) {
  const auto own = static_cast<std::size_t>(call.group->rank());
  const int ranks = call.group->size();
  Codec& codec = *call.shard_codecs[own];
  std::vector<Payload> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t p = 0; p < call.own[own].parts.size(); ++p) {
      const Tensor& shape = call.own[own].parts[p];
      all[static_cast<std::size_t>(rank)].parts.push_back(
          call.arrived[2 * p + 1]
              .narrow(0, rank * shape.numel(), shape.numel())
              .view(shape.sizes()));
    }
  if (!codec.traits().identity) return codec.reduce(all, call.divisor(), call.slot);
  const Tensor& like = all[0].parts[0];
  Tensor sum = at::empty_like(like, like.options().dtype(sum_type(like.scalar_type())));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    codec.decode(all[rank], sum, rank == 0 ? Write::set : Write::add);
  codec.conclude(sum, call.divisor());
  return {.parts = {sum.to(like.scalar_type())}};
}

void advance(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  const int ranks = call.group->size();
  call.merged = reduced(call);
  call.handles.clear();
  call.arrived.clear();
  for (std::size_t p = 0; p < call.merged.parts.size(); ++p) {
    const auto sizes = part_sizes(call, p);
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) total += size;
    const Tensor flat = call.merged.parts[p].reshape({-1});
    call.arrived.push_back(at::cat(std::vector<Tensor>(static_cast<std::size_t>(ranks), flat)));
    call.arrived.push_back(at::empty({total}, flat.options()));
    const std::vector<std::int64_t> in_counts(static_cast<std::size_t>(ranks), flat.numel());
    call.handles.push_back(
        call.group->all_to_all(call.next_message(), buffer_of(call.arrived[2 * p + 1]),
                               buffer_of(call.arrived[2 * p]), sizes, in_counts));
  }
  call.more = false;
}

void finish(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  const int ranks = call.group->size();
  std::vector<std::int64_t> at(call.merged.parts.size(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Payload payload;
    for (std::size_t p = 0; p < at.size(); ++p) {
      const Tensor& shape = call.own[r].parts[p];
      payload.parts.push_back(
          call.arrived[2 * p + 1].narrow(0, at[p], shape.numel()).view(shape.sizes()));
      at[p] += shape.numel();
    }
    Codec& codec = *call.shard_codecs[r];
    codec.commit(payload);
    const Tensor place = part_of(call.value, rank, ranks);
    Tensor part = place;
    codec.decode(payload, part, Write::set);
    if (!part.is_same(place)) place.copy_(part);
  }
}

}  // namespace
}  // namespace shard_stages

const Algorithm kShard{"shard",
                       shard_stages::prepare,
                       shard_stages::start,
                       shard_stages::advance,
                       shard_stages::finish,
                       [](const Call& call) {
                         const int ranks = call.group->size();
                         return 2 * call.payload * (ranks - 1) / ranks;
                       }};

}  // namespace thinwire
