// SPDX-License-Identifier: Apache-2.0
// How wide the fields are in which codes of all ranks are added: what plans and codecs both know.
// No torch.
#pragma once
#include <fmt/format.h>

#include <string>

#include "thinwire/codec/kernels/sums.h"
#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"

namespace thinwire {

struct GridSize {
  std::int64_t levels = 0;  ///< codes of one rank are in [-levels, levels], at most 16383
  std::int64_t ranks = 0;   ///< so many may add theirs
  int bits = 0;             ///< of a field: ceil(log2(2 levels ranks + 1))

  Bytes bytes(std::int64_t count) const { return 8 * kernels::sum_words(count, bits); }
};

/// Of the proposal that agrees on so many scales and counts the ranks.
constexpr Bytes agreement_bytes(std::int64_t scales) { return 4 * (scales + 1); }

/// Reads `ranks`. ConfigError where fields would not hold that many.
inline GridSize read_grid_size(SpecReader& reader, const std::string& codec, std::int64_t levels) {
  const std::int64_t ranks = reader.integer("ranks", 64);
  if (ranks < 1 || ranks > 65536)
    throw ConfigError(fmt::format("{}: ranks must be in [1, 65536], got {}", codec, ranks));
  // A single level of a single rank has fields of two bits.
  return {.levels = levels, .ranks = ranks, .bits = kernels::sum_bits(levels, ranks)};
}

}  // namespace thinwire
