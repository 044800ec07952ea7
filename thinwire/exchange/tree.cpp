// SPDX-License-Identifier: Apache-2.0
// tree: payloads that add are added in pairs, rank r + 2^l to rank r at level l, and the sum goes
// down the same tree. Few messages a rank, and sums that no transport makes; in the order of the
// tree, which is not that of ranks from 3 ranks on.
// Rounds: 2 ceil(log2 n). Bytes a rank sends: P up, and P for each child: log2 n of them at most.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>

#include <bit>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/exchange/call.h"

namespace thinwire {
namespace tree_stages {
namespace {

std::string prepare(Call& call) {
  const CodecTraits traits = call.codec->traits();
  if (!traits.summable || traits.merges)
    return "it adds payloads, and those of this form do not add";
  const auto type = call.descs.empty() ? at::kFloat : scalar_type_of(call.descs[0].dtype);
  if (traits.halves || sum_type(type) != type) return "halves would be rounded at every level";
  return {};
}

int levels(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

/// Up at stages 0 to levels - 1, then down the other way.
struct Place {
  int level, partner;
  bool sends, receives, up;
};
Place place_at(const Call& call, int stage) {
  const int ranks = call.group->size(), rank = call.group->rank(), all = levels(ranks);
  Place out{.level = stage < all ? stage : 2 * all - 1 - stage, .partner = -1, .up = stage < all};
  const int step = 1 << out.level;
  const bool lower = rank % (2 * step) == 0 && rank + step < ranks;
  const bool upper = rank % (2 * step) == step;
  out.partner = lower ? rank + step : rank - step;
  out.sends = out.up ? upper : lower;
  out.receives = out.up ? lower : upper;
  return out;
}

/// `arrived` holds the sums, then room for what comes.
void send_stage(Call& call) {
  const Place place = place_at(call, call.stage);
  const std::size_t parts = call.arrived.size() / 2;
  call.handles.clear();
  for (std::size_t p = 0; p < parts; ++p) {
    const MessageId id{call.exchange->id, call.slot.step,
                       static_cast<std::int32_t>(static_cast<std::size_t>(call.stage) * parts + p)};
    if (call.arrived[p].numel() == 0) continue;
    if (place.sends) {
      call.sent += static_cast<Bytes>(call.arrived[p].nbytes());
      call.handles.push_back(call.group->send(id, buffer_of(call.arrived[p]), place.partner));
    }
    if (place.receives)
      call.handles.push_back(
          call.group->recv(id, buffer_of(call.arrived[parts + p]), place.partner));
  }
}

void start(Call& call) {
  call.own.assign(1, encode(call, *call.codec, 0, call.x.numel()));
  call.arrived.clear();
  for (const Tensor& part : call.own[0].parts) call.arrived.push_back(part.clone());
  for (const Tensor& part : call.own[0].parts) call.arrived.push_back(at::empty_like(part));
  // Memories change what they hold while it travels.
  if (call.codec->traits().identity && !call.memories.empty())
    call.own[0].parts[0] = call.own[0].parts[0].clone();
  call.payload += call.own[0].bytes();
  tell_sent(call, Sent({{call.codec.get(), &call.own[0], 0, call.x.numel()}}));
  call.stage = 0;
  call.more = call.group->size() > 1;
  call.handles.clear();
  if (call.more) send_stage(call);
}

/// What has come in this stage: another sum to add, or the sum of all.
void take(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  const Place place = place_at(call, call.stage);
  const std::size_t parts = call.arrived.size() / 2;
  for (std::size_t p = 0; place.receives && p < parts; ++p)
    place.up ? call.arrived[p].add_(call.arrived[parts + p])
             : call.arrived[p].copy_(call.arrived[parts + p]);
}

void advance(Call& call) {
  take(call);
  ++call.stage;
  call.more = call.stage + 1 < 2 * levels(call.group->size());
  send_stage(call);
}

void finish(Call& call) {
  if (call.group->size() > 1) take(call);
  call.arrived.resize(call.arrived.size() / 2);
  Payload sum{.parts = call.arrived};
  call.codec->decode(sum, call.value, Write::set);
  call.codec->conclude(call.value, call.divisor());
}

}  // namespace
}  // namespace tree_stages

const Algorithm kTree{"tree",
                      tree_stages::prepare,
                      tree_stages::start,
                      tree_stages::advance,
                      tree_stages::finish,
                      [](const Call& call) { return call.sent; }};

}  // namespace thinwire
