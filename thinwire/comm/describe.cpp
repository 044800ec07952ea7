// SPDX-License-Identifier: Apache-2.0
// How calls are named in errors and traces.
#include <array>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/message_ids.h"

namespace thinwire {
namespace {
constexpr std::array<std::string_view, 8> kKinds{"all_reduce", "reduce_scatter", "all_gather",
                                                 "all_to_all", "broadcast",      "send",
                                                 "recv",       "barrier"};
}  // namespace

std::string_view to_string(CallKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::string describe(CallKind kind, const MessageId& id) {
  std::string text(to_string(kind));
  if (id.exchange == kAgreement)
    text += ", agreement on changed parameters";
  else if (id.exchange == kReadiness)
    text += ", agreement on what is ready";
  else
    text += id.exchange < 0 ? ", outside the plan" : ", exchange " + std::to_string(id.exchange);
  text += ", step " + std::to_string(id.step);
  if (id.part != 0) text += ", part " + std::to_string(id.part);
  return text;
}

}  // namespace thinwire
