// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/choice.h"

namespace thinwire {

std::vector<std::string_view> ranked_algorithms(const AlgorithmChoice& choice) {
  const CodecTraits& traits = choice.traits;
  // The transport adds, where it adds as this form must be added.
  if (traits.identity || traits.merges || (traits.summable && choice.caps.rank_order))
    return {"direct", "gather", "shard"};
  const auto seconds = [&](int rounds, double bytes) {
    return rounds * choice.link.latency_s + bytes / choice.link.bytes_per_s;
  };
  const auto payload = static_cast<double>(choice.payload);
  const double gather = seconds(1, payload * (choice.ranks - 1));
  const double shard = seconds(2, 2 * payload * (choice.ranks - 1) / choice.ranks);
  if (traits.closed && traits.fixed_size && shard < gather) return {"shard", "gather"};
  return {"gather", "shard"};
}

}  // namespace thinwire
