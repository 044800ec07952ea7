// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/codec.h"

#include "thinwire/codec/memory.h"

namespace thinwire {

Bytes Payload::bytes() const {
  Bytes total = 0;
  for (const Tensor& part : parts) total += static_cast<Bytes>(part.nbytes());
  return total;
}

std::optional<Proposal> Codec::propose(const Tensor&, const Slot&) { return std::nullopt; }
void Codec::commit(Payload&) {}
void Codec::visit_state(StateVisitor&) {}
void Memory::received(Tensor&, Rank, const Slot&) {}

}  // namespace thinwire
