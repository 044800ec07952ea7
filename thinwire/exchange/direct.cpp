// SPDX-License-Identifier: Apache-2.0
// direct: the transport's own all-reduce, in place on the caller's memory. For forms whose payload
// is the input itself, without memories.
// Bytes a rank sends: 2 P (n-1)/n (docs/costs.md has the transports' own).
#include "thinwire/exchange/call.h"

namespace thinwire {
namespace {

std::string prepare(Call& call) {
  if (call.memories.empty() && call.codec->traits().identity) return {};
  return "it adds values as they are, in the transport, and so takes the form 'none' alone";
}

void start(Call& call) {
  call.handles.resize(1);
  call.handles[0] =
      call.group->all_reduce(call.next_message(), buffer_of(call.data), call.exchange->combine);
}

void finish(Call& call) {
  call.handles[0].wait();
  call.handles[0] = Handle();
}

}  // namespace

const Algorithm kDirect{"direct", prepare, start, finish,
                        [](Bytes payload, int ranks) { return 2 * payload * (ranks - 1) / ranks; }};

}  // namespace thinwire
