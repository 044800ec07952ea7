// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/votes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

bool bit_of(std::span<const std::uint8_t> bits, std::size_t i) {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

/// weight(voter, element)
template <class Weight>
void majority(PackedVotes votes, std::int64_t count, std::span<std::uint8_t> out, Weight weight) {
  TW_ASSERT(static_cast<std::int64_t>(out.size()), ==, (count + 7) / 8);
  for (const auto& vote : votes) TW_ASSERT(vote.size(), ==, out.size());
  const auto elements = static_cast<std::size_t>(count);
  for (std::size_t byte = 0; byte < out.size(); ++byte) {
    unsigned bits = 0;
    for (std::size_t i = 8 * byte; i < std::min(elements, 8 * byte + 8); ++i) {
      std::int64_t sum = 0;
      for (std::size_t voter = 0; voter < votes.size(); ++voter)
        sum += bit_of(votes[voter], i) ? -weight(voter, i) : weight(voter, i);
      if (sum < 0) bits |= 1U << (i % 8);
    }
    out[byte] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

std::int64_t vote_weight(double share) {
  constexpr double kAway = 1e-5, kMost = 10;
  const double weight = std::log((share + kAway) / (1 - share + kAway));
  return std::llrint(std::clamp(weight, -kMost, kMost) * 0x1p20);
}

void weighted_majority(PackedVotes votes, std::span<const std::int64_t> weights, std::int64_t count,
                       std::span<std::uint8_t> out) {
  TW_ASSERT(weights.size(), ==, votes.size());
  majority(votes, count, out, [&](std::size_t voter, std::size_t) { return weights[voter]; });
}

void weighted_majority(PackedVotes votes, std::span<const std::span<const std::int16_t>> agreements,
                       std::span<const std::int64_t> table, std::int64_t count,
                       std::span<std::uint8_t> out) {
  TW_ASSERT(agreements.size(), ==, votes.size());
  for (const auto& counters : agreements)
    for (const std::int16_t each : counters)
      if (each < 0 || static_cast<std::size_t>(each) >= table.size())
        throw DataError(
            fmt::format("sign_weighted: a counter must be below {}, got {}", table.size(), each));
  majority(votes, count, out, [&](std::size_t voter, std::size_t i) {
    return table[static_cast<std::size_t>(agreements[voter][i])];
  });
}

void count_agreements(std::span<const std::uint8_t> vote, std::span<const std::uint8_t> outcome,
                      std::span<std::int16_t> agreements) {
  TW_ASSERT(vote.size(), ==, outcome.size());
  for (std::size_t i = 0; i < agreements.size(); ++i)
    agreements[i] =
        static_cast<std::int16_t>(agreements[i] + (bit_of(vote, i) == bit_of(outcome, i) ? 1 : 0));
}

}  // namespace thinwire::kernels
