// SPDX-License-Identifier: Apache-2.0
// Majorities of packed signs (signs.h) in which each voter has a weight: the logarithm of how much
// more often its bits have agreed with what came out than not.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire::kernels {

/// ln((share + e) / (1 - share + e)), e = 1e-5, cut off at +-10; share: of the votes in which the
/// voter agreed, in [0, 1]. In steps of 2^-20, so that sums are exact in any order.
std::int64_t vote_weight(double share);

using PackedVotes = std::span<const std::span<const std::uint8_t>>;

/// A bit is set where the weights of the voters that have it set are more than those of the others;
/// a tie is positive. All of `count` bits, which what is in `votes` must hold.
void weighted_majority(PackedVotes votes, std::span<const std::int64_t> weights, std::int64_t count,
                       std::span<std::uint8_t> out);

/// The same with a weight for each voter and element: table[agreements[voter][i]]. DataError for a
/// counter beyond the table.
void weighted_majority(PackedVotes votes, std::span<const std::span<const std::int16_t>> agreements,
                       std::span<const std::int64_t> table, std::int64_t count,
                       std::span<std::uint8_t> out);

/// ++agreements[i] where bit i of the vote and of what came out are the same.
void count_agreements(std::span<const std::uint8_t> vote, std::span<const std::uint8_t> outcome,
                      std::span<std::int16_t> agreements);

}  // namespace thinwire::kernels
