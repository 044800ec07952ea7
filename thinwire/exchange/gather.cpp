// SPDX-License-Identifier: Apache-2.0
// gather: everybody gets everybody's payload, and decodes and adds them in rank order. Payloads
// whose size depends on their values are announced by length first.
// Bytes a rank sends: P (n-1), and 8 (n-1) a part of lengths.
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/exchange/call.h"

namespace thinwire {
namespace gather_stages {
namespace {

std::string prepare(Call& call) {
  if (call.codec->traits().merges) return "this form needs a sum in the transport";
  return {};
}

void send_equal(Call& call) {
  const int ranks = call.group->size();
  Payload& own = call.own[0];
  call.arrived.resize(own.parts.size());
  for (std::size_t p = 0; p < own.parts.size(); ++p) {
    Tensor& sent = own.parts[p];
    sent = sent.contiguous();
    std::vector<std::int64_t> shape(sent.sizes().begin(), sent.sizes().end());
    shape.insert(shape.begin(), ranks);
    make_room(call.arrived[p], shape, sent.options());
    call.handles.push_back(
        call.group->all_gather(call.next_message(), buffer_of(call.arrived[p]), buffer_of(sent)));
  }
}

/// Lengths of rank r's parts stand at r * parts.
void send_lengths(Call& call) {
  Payload& own = call.own[0];
  const auto parts = static_cast<std::int64_t>(own.parts.size());
  const int ranks = call.group->size();
  call.lengths.assign(static_cast<std::size_t>(parts * ranks), 0);
  std::int64_t* mine = call.lengths.data() + parts * call.group->rank();
  for (std::int64_t p = 0; p < parts; ++p) {
    Tensor& sent = own.parts[static_cast<std::size_t>(p)];
    sent = sent.contiguous().view({-1});
    mine[p] = sent.numel();
  }
  call.handles.push_back(call.group->all_gather(call.next_message(),
                                                {call.lengths.data(), parts * ranks, DType::i64},
                                                {mine, parts, DType::i64}));
  call.payload += 8 * parts;
  call.more = true;
}

void start(Call& call) {
  call.own.resize(1);
  call.own[0] = encode(call, *call.codec, 0, call.x.numel());
  // Memories change what they hold while it travels.
  if (call.codec->traits().identity && !call.memories.empty())
    call.own[0].parts[0] = call.own[0].parts[0].clone();
  call.payload += call.own[0].bytes();
  call.handles.clear();
  if (call.codec->traits().fixed_size)
    send_equal(call);
  else
    send_lengths(call);
  // While the payload travels.
  tell_sent(call, Sent({{call.codec.get(), &call.own[0], 0, call.x.numel()}}));
}

std::int64_t length_of(const Call& call, int rank, std::size_t part) {
  return call.lengths[static_cast<std::size_t>(rank) * call.own[0].parts.size() + part];
}

void advance(Call& call) {
  call.handles[0].wait();
  call.handles.clear();
  const int ranks = call.group->size();
  const std::size_t parts = call.own[0].parts.size();
  call.arrived.assign(2 * parts, {});  // what is sent, once for each rank, and what comes
  for (std::size_t p = 0; p < parts; ++p) {
    const Tensor& own = call.own[0].parts[p];
    std::vector<std::int64_t> lengths;
    for (int rank = 0; rank < ranks; ++rank) {
      lengths.push_back(length_of(call, rank, p));
      const auto most = call.codec->max_bytes();
      if (lengths.back() < 0 || lengths.back() * static_cast<Bytes>(own.element_size()) > most)
        throw DataError(
            fmt::format("rank {} announces a payload of {} elements, the most are {} bytes", rank,
                        lengths.back(), most));
    }
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(ranks), own.numel());
    call.arrived[2 * p] = own.expand({ranks, own.numel()}).contiguous();
    call.arrived[2 * p + 1] = at::empty(
        {std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})}, own.options());
    call.handles.push_back(call.group->all_to_all(call.next_message(),
                                                  buffer_of(call.arrived[2 * p + 1]),
                                                  buffer_of(call.arrived[2 * p]), lengths, mine));
  }
  call.more = false;
}

void finish(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  const int ranks = call.group->size();
  const bool fixed = call.codec->traits().fixed_size;
  std::vector<std::int64_t> at(call.own[0].parts.size(), 0);
  std::vector<Payload> payloads(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Payload& payload = payloads[static_cast<std::size_t>(rank)];
    for (std::size_t p = 0; p < at.size(); ++p) {
      if (fixed) {
        payload.parts.push_back(call.arrived[p].select(0, rank));
        continue;
      }
      payload.parts.push_back(call.arrived[2 * p + 1].narrow(0, at[p], length_of(call, rank, p)));
      at[p] += length_of(call, rank, p);
    }
  }
  call.codec->combine(payloads, call.divisor(), call.value);
}

}  // namespace
}  // namespace gather_stages

const Algorithm kGather{"gather",
                        gather_stages::prepare,
                        gather_stages::start,
                        gather_stages::advance,
                        gather_stages::finish,
                        [](const Call& call) { return call.payload * (call.group->size() - 1); }};

}  // namespace thinwire
