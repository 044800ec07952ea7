// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries out an exchange where its plan names none.
#pragma once
#include <string_view>
#include <vector>

#include "thinwire/codec/codec.h"
#include "thinwire/comm/comm.h"
#include "thinwire/plan/cluster.h"

namespace thinwire {

/// What the choice depends on.
struct AlgorithmChoice {
  CodecTraits traits;
  CommCaps caps;
  Bytes payload = 0;  ///< of one rank
  int ranks = 1;
  Link link{.latency_s = 1e-4, .bytes_per_s = 1.25e8};  ///< between ranks; the default: 1 Gbit/s
};

/// Best first; the exchanger takes the first that can. All give the same value: `shard` encodes
/// sums, which loses something unless the codec is closed, so only then can time make it better
/// than `gather`. `tree` and `hierarchical` sum in another order: a plan must name them.
std::vector<std::string_view> ranked_algorithms(const AlgorithmChoice& choice);

}  // namespace thinwire
