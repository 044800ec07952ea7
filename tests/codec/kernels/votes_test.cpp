// SPDX-License-Identifier: Apache-2.0
// Weighted majorities: the weights and the errors of the formula, over all patterns of votes.
#include "thinwire/codec/kernels/votes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "thinwire/codec/kernels/signs.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Packed = std::vector<std::uint8_t>;

/// Element p has the votes of pattern p: voter m is wrong where bit m of p is set; truth is +1.
std::vector<Packed> all_patterns(std::size_t voters) {
  const std::size_t patterns = std::size_t{1} << voters;
  std::vector<Packed> out(voters, Packed((patterns + 7) / 8));
  for (std::size_t p = 0; p < patterns; ++p)
    for (std::size_t m = 0; m < voters; ++m)
      if (p >> m & 1) out[m][p / 8] |= static_cast<std::uint8_t>(1U << (p % 8));
  return out;
}

std::vector<std::span<const std::uint8_t>> spans(const std::vector<Packed>& votes) {
  return {votes.begin(), votes.end()};
}

/// The probability that the outcome is wrong.
double error_of(const Packed& outcome, const std::vector<double>& wrong) {
  double error = 0;
  for (std::size_t p = 0; p < std::size_t{1} << wrong.size(); ++p) {
    if (!(outcome[p / 8] >> (p % 8) & 1)) continue;
    double chance = 1;
    for (std::size_t m = 0; m < wrong.size(); ++m) chance *= p >> m & 1 ? wrong[m] : 1 - wrong[m];
    error += chance;
  }
  return error;
}

struct Errors {
  double plain, weighted;
};
Errors errors_of(const std::vector<double>& wrong) {
  const auto votes = all_patterns(wrong.size());
  const auto count = std::int64_t{1} << wrong.size();
  std::vector<std::int64_t> weights;
  for (const double p : wrong) weights.push_back(vote_weight(1 - p));
  Packed plain(votes[0].size()), weighted(plain.size());
  majority_of_signs(spans(votes), count, plain);
  weighted_majority(spans(votes), weights, count, weighted);
  return {error_of(plain, wrong), error_of(weighted, wrong)};
}

double weight(double share) { return static_cast<double>(vote_weight(share)) / 0x1p20; }

}  // namespace

TEST(Votes, WeightsAreThoseOfTheFormula) {
  EXPECT_NEAR(weight(0.9), 2.1972, 1e-3);
  EXPECT_NEAR(weight(0.6), 0.4055, 1e-4);
  EXPECT_EQ(weight(0.5), 0);
  EXPECT_NEAR(weight(0.2), -weight(0.8), 1e-6);
  EXPECT_EQ(weight(1), 10) << "ln(1e5) is cut off";
  EXPECT_EQ(weight(0), -10);
}

TEST(Votes, TheWeightedVoteFollowsTheGoodVoter) {
  const Errors errors = errors_of({.1, .4, .4, .4, .4});
  EXPECT_NEAR(errors.plain, 0.21376, 1e-5);
  EXPECT_NEAR(errors.weighted, 0.1, 1e-9);
}

TEST(Votes, InversionIsFree) {
  const std::vector<double> honest(15, 0.2);
  std::vector<double> liars = honest;
  for (std::size_t m = 0; m < 7; ++m) liars[m] = 0.8;
  const Errors attacked = errors_of(liars);
  EXPECT_NEAR(attacked.plain, 0.4195, 1e-4);
  EXPECT_NEAR(attacked.weighted, 0.004240, 1e-6);
  EXPECT_NEAR(attacked.weighted, errors_of(honest).weighted, 1e-12);
  // Of the eight that are left when the others are thrown away, four wrong are a tie, half lost.
  double thrown = 0, half = 0;
  for (unsigned p = 0; p < 256; ++p) {
    const int wrong = std::popcount(p);
    const double chance = std::pow(0.2, wrong) * std::pow(0.8, 8 - wrong);
    if (wrong > 4) thrown += chance;
    if (wrong == 4) half += chance / 2;
  }
  EXPECT_NEAR(thrown + half, 0.0333, 1e-4);
}

TEST(Votes, EqualWeightsAreTheMajority) {
  std::mt19937 random(3);
  for (const std::int64_t count : {1, 8, 1031})
    for (const std::size_t voters : {1, 2, 5}) {
      std::vector<Packed> votes(voters, Packed(static_cast<std::size_t>(sign_bytes(count))));
      for (Packed& vote : votes) {
        for (std::uint8_t& byte : vote) byte = static_cast<std::uint8_t>(random());
        if (count % 8 != 0) vote.back() &= static_cast<std::uint8_t>((1U << (count % 8)) - 1);
      }
      Packed wanted(votes[0].size()), same(wanted.size()), each(wanted.size());
      majority_of_signs(spans(votes), count, wanted);
      weighted_majority(spans(votes), std::vector<std::int64_t>(voters, 5), count, same);
      EXPECT_EQ(same, wanted);
      const std::vector<std::int16_t> counters(static_cast<std::size_t>(count), 1);
      const std::vector<std::span<const std::int16_t>> agreements(voters, counters);
      weighted_majority(spans(votes), agreements, std::vector<std::int64_t>{0, 7}, count, each);
      EXPECT_EQ(each, wanted);
      EXPECT_THROW(
          weighted_majority(spans(votes), agreements, std::vector<std::int64_t>{0}, count, each),
          DataError);
    }
}

TEST(Votes, CountsWhereBitsAreTheSame) {
  std::vector<std::int16_t> counters(11, 3);
  count_agreements(Packed{0b10101010, 0b101}, Packed{0b11110000, 0b001}, counters);
  EXPECT_EQ(counters, (std::vector<std::int16_t>{4, 3, 4, 3, 3, 4, 3, 4, 4, 4, 3}));
}

}  // namespace thinwire::kernels
