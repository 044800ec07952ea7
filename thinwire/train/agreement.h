// SPDX-License-Identifier: Apache-2.0
// What ranks must agree on before the first gradient moves, and the sentences for when they do not.
// No torch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/comm/membership.h"

namespace thinwire {

/// One parameter or buffer as a rank sees it.
struct Declared {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape, strides;
  bool buffer = false;
  bool frozen = false;    ///< requires no gradient
  bool excluded = false;  ///< left out of the exchange on the user's wish
};

/// Collective, on the control connections. A difference is a ConfigError with the same text on all
/// ranks: who, where, what on either side. `when` says when this is compared ("at construction",
/// "at step 12").
void agree_on_parameters(Membership& group, const std::vector<Declared>& mine,
                         const std::string& when);

/// Collective. hashes[i] is of the tensor named names[i]; a difference from rank 0 is a ConfigError
/// on all ranks, with the same text, that names the rank, the tensor and `operation`.
void agree_on_values(Membership& group, const std::vector<std::string>& names,
                     const std::vector<std::uint64_t>& hashes, const std::string& operation);

}  // namespace thinwire
