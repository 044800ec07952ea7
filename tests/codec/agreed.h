// SPDX-License-Identifier: Apache-2.0
// A codec between ranks without a transport: what they agree on, and what their payloads add up to.
#pragma once
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire::test {

inline std::unique_ptr<Codec> one_tensor(const std::string& text, std::int64_t n) {
  const Spec spec = parse_spec(text);
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find(spec.name).make(spec, descs);
}

/// The slot with what ranks with these values agree on.
inline Slot agree(Codec& codec, const std::vector<at::Tensor>& xs, Slot slot) {
  for (;;) {
    at::Tensor value;
    for (std::size_t rank = 0; rank < xs.size(); ++rank) {
      slot.rank = static_cast<Rank>(rank);
      const auto proposal = codec.propose(xs[rank], slot);
      if (!proposal) return slot;
      if (rank == 0)
        value = proposal->value.clone();
      else if (proposal->op == Combine::max)
        value = at::maximum(value, proposal->value);
      else if (proposal->op == Combine::bit_or)
        value = at::bitwise_or(value, proposal->value);
      else
        ADD_FAILURE() << "this combination is not in use";
    }
    slot.agreed.push_back(value);
  }
}

/// What comes out of the sum of their payloads.
inline at::Tensor of_ranks(Codec& codec, const std::vector<at::Tensor>& xs,
                           Slot slot = {.seed = 1}) {
  slot = agree(codec, xs, slot);
  at::Tensor sum, out;
  for (std::size_t rank = 0; rank < xs.size(); ++rank) {
    slot.rank = static_cast<Rank>(rank);
    const at::Tensor own = codec.encode(xs[rank], slot).parts[0];
    sum = rank == 0 ? own.clone() : sum + own;
  }
  codec.decode({.parts = {sum}}, out, Write::set);
  return out;
}

}  // namespace thinwire::test
