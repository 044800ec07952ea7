// SPDX-License-Identifier: Apache-2.0
// hierarchical: payloads go to the first rank of each host, over the fast links inside; the first
// ranks exchange with each other, one message where gather has one a pair of ranks; what comes goes
// to the ranks of the host. `none` is added at the first ranks, inside a host and then over hosts,
// so its sum is in another order than that of ranks (with one host: the same); of other forms all
// payloads go on, and everybody adds them in rank order, as with gather.
// Jia, Song, He, Wang et al., "Highly Scalable Deep Learning Training System with Mixed-Precision:
// Training ImageNet in Four Minutes" (2018), arXiv 1807.11205.
// Rounds: 3, and one more of the all_reduce between hosts for `none`. Bytes, h hosts of k ranks:
// the first rank of a host sends 2 P (h-1)/h + P (k-1) of `none`, else k P (h-1) + n P (k-1);
// others P.
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "thinwire/exchange/call.h"

namespace thinwire {
namespace hierarchical_stages {
namespace {

std::string prepare(Call& call) {
  const CodecTraits traits = call.codec->traits();
  if (traits.merges) return "this form needs a sum in the transport";
  if (!traits.fixed_size) return "payloads whose size depends on their values are not built in";
  if (call.hosts == nullptr && call.group) return "a plan must name it";
  return {};
}

MessageId message(const Call& call, int stage, std::size_t part, int row = 0) {
  const auto parts = call.own[0].parts.size();
  return {
      call.exchange->id, call.slot.step,
      static_cast<std::int32_t>(
          (static_cast<std::size_t>(row) * 3 + static_cast<std::size_t>(stage)) * parts + part)};
}

bool adds(const Call& call) { return call.codec->traits().identity; }

void send(Call& call, Comm& group, const MessageId& id, const Tensor& what, Rank to) {
  call.sent += static_cast<Bytes>(what.nbytes());
  call.handles.push_back(group.send(id, buffer_of(what), to));
}

/// arrived[p]: a row for each rank, those of a host side by side, in the order of hosts.
Tensor rows_of(const Call& call, std::size_t part, int host) {
  const Hosts& hosts = *call.hosts;
  return call.arrived[part].narrow(0, hosts.begin(host),
                                   hosts.sizes[static_cast<std::size_t>(host)]);
}

void start(Call& call) {
  const Hosts& hosts = *call.hosts;
  call.own.assign(1, encode(call, *call.codec, 0, call.x.numel()));
  // Memories change what they hold while it travels.
  if (adds(call) && !call.memories.empty()) call.own[0].parts[0] = call.own[0].parts[0].clone();
  call.payload += call.own[0].bytes();
  call.handles.clear();
  const std::size_t parts = call.own[0].parts.size();
  call.arrived.resize(parts);
  const bool leads = hosts.inside->rank() == 0;
  const int rows = adds(call) ? hosts.inside->size() : hosts.all();
  for (std::size_t p = 0; p < parts; ++p) {
    Tensor& own = call.own[0].parts[p];
    own = own.contiguous();
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape.insert(shape.begin(), rows);
    if (leads || !adds(call)) make_room(call.arrived[p], shape, own.options());
    if (own.numel() == 0) continue;
    if (!leads) {
      send(call, *hosts.inside, message(call, 0, p), own, 0);
      continue;
    }
    const int first = adds(call) ? 0 : hosts.begin(hosts.host);
    call.arrived[p].select(0, first).copy_(own);
    for (Rank rank = 1; rank < hosts.inside->size(); ++rank)
      call.handles.push_back(hosts.inside->recv(
          message(call, 0, p), buffer_of(call.arrived[p].select(0, first + rank)), rank));
  }
  call.stage = 0;
  call.more = true;
  tell_sent(call, Sent({{call.codec.get(), &call.own[0], 0, call.x.numel()}}));
}

/// Between the first ranks.
void between(Call& call) {
  const Hosts& hosts = *call.hosts;
  if (adds(call)) {
    for (Rank rank = 0; rank < hosts.inside->size(); ++rank)
      call.codec->decode({.parts = {call.arrived[0].select(0, rank)}}, call.value,
                         rank == 0 ? Write::set : Write::add);
    if (hosts.count() == 1 || call.value.numel() == 0) return;
    call.sent += 2 * static_cast<Bytes>(call.value.nbytes()) * (hosts.count() - 1) / hosts.count();
    call.handles.push_back(
        hosts.between->all_reduce(message(call, 1, 0), buffer_of(call.value), Combine::sum));
    return;
  }
  for (std::size_t p = 0; p < call.arrived.size(); ++p)
    for (int host = 0; host < hosts.count(); ++host) {
      if (host == hosts.host || call.arrived[p].numel() == 0) continue;
      send(call, *hosts.between, message(call, 1, p), rows_of(call, p, hosts.host), host);
      call.handles.push_back(
          hosts.between->recv(message(call, 1, p), buffer_of(rows_of(call, p, host)), host));
    }
}

/// What the first rank has, to the others of its host.
void hand_on(Call& call) {
  const Hosts& hosts = *call.hosts;
  const bool leads = hosts.inside->rank() == 0;
  const std::size_t parts = adds(call) ? 1 : call.arrived.size();
  for (std::size_t p = 0; p < parts; ++p) {
    Tensor& what = adds(call) ? call.value : call.arrived[p];
    if (what.numel() == 0) continue;
    if (!leads) call.handles.push_back(hosts.inside->recv(message(call, 2, p), buffer_of(what), 0));
    for (Rank rank = 1; leads && rank < hosts.inside->size(); ++rank)
      send(call, *hosts.inside, message(call, 2, p), what, rank);
  }
}

void advance(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  call.handles.clear();
  if (++call.stage == 1) {
    if (call.hosts->inside->rank() == 0) between(call);
    return;
  }
  hand_on(call);
  call.more = false;
}

void finish(Call& call) {
  for (Handle& handle : call.handles) handle.wait();
  if (adds(call)) return call.codec->conclude(call.value, call.divisor());
  const Hosts& hosts = *call.hosts;
  std::vector<Payload> payloads(static_cast<std::size_t>(hosts.all()));
  for (std::size_t rank = 0; rank < payloads.size(); ++rank)
    for (const Tensor& part : call.arrived)
      payloads[rank].parts.push_back(part.select(0, hosts.row_of[rank]));
  call.codec->combine(payloads, call.divisor(), call.value);
}

}  // namespace
}  // namespace hierarchical_stages

const Algorithm kHierarchical{"hierarchical",
                              hierarchical_stages::prepare,
                              hierarchical_stages::start,
                              hierarchical_stages::advance,
                              hierarchical_stages::finish,
                              [](const Call& call) { return call.sent; }};

}  // namespace thinwire
