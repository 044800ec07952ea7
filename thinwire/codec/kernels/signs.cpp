// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/signs.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/kernels/signs_avx2.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

std::size_t bytes_of(std::size_t count) { return (count + 7) / 8; }
float value_of(const SignValues& values, bool negative) {
  return negative ? values.negative : values.other;
}
bool bit_at(const std::uint8_t* bits, std::size_t i) { return (bits[i / 8] >> (i % 8) & 1) != 0; }

void check_decoded(std::size_t bytes, std::size_t count) {
  if (bytes != bytes_of(count))
    throw DataError(
        fmt::format("signs: {} elements have {} bytes, got {}", count, bytes_of(count), bytes));
}

// The plain loops below begin at an element `from` that a whole number of bytes and of rounds of
// lanes precedes.
void pack_from(std::size_t from, std::span<const float> x, std::uint8_t* bits) {
  for (std::size_t i = from; i < x.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t j = i; j < std::min(i + 8, x.size()); ++j)
      byte |= static_cast<unsigned>(x[j] < 0) << (j - i);
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
}

double sum_from(std::size_t from, std::span<const float> x, double (&lanes)[kLanes]) {
  for (std::size_t i = from; i < x.size(); ++i) lanes[lane_of(i)] += std::fabs(x[i]);
  return fold_lanes(lanes);
}

double accumulate_from(std::size_t from, std::span<float> memory, std::span<const float> x,
                       double (&lanes)[kLanes]) {
  for (std::size_t i = from; i < x.size(); ++i) {
    memory[i] += x[i];
    lanes[lane_of(i)] += std::fabs(memory[i]);
  }
  return fold_lanes(lanes);
}

void residual_from(std::size_t from, std::span<float> x, SignValues values, std::uint8_t* bits) {
  pack_from(from, x, bits);
  for (std::size_t i = from; i < x.size(); ++i) x[i] -= value_of(values, bit_at(bits, i));
}

void decode_from(std::size_t from, const std::uint8_t* bits, SignValues values,
                 std::span<float> out, Write mode) {
  for (std::size_t i = from; i < out.size(); ++i) {
    const float value = value_of(values, bit_at(bits, i));
    out[i] = mode == Write::add ? out[i] + value : value;
  }
}

/// Counts votes for 64 elements at once: plane j holds bit j of every count. Eight words of 64 are
/// done together, so that the inner loops become vector code.
class VoteCounter {
 public:
  static constexpr std::size_t kWords = 8;
  using Words = std::uint64_t[kWords];

  explicit VoteCounter(std::size_t votes)
      : half_(votes / 2), planes_(static_cast<std::size_t>(std::bit_width(votes))) {}

  void clear() { std::memset(plane_, 0, sizeof plane_); }

  void add(const Words& vote) {
    Words carry;
    std::memcpy(carry, vote, sizeof carry);
    for (std::size_t p = 0; p < planes_; ++p) {
      for (std::size_t w = 0; w < kWords; ++w) {
        const std::uint64_t both = plane_[p][w] & carry[w];
        plane_[p][w] ^= carry[w];
        carry[w] = both;
      }
    }
  }

  /// Set where the count is greater than half of the votes.
  void decide(Words& out) const {
    Words greater{}, equal;
    std::memset(equal, 0xff, sizeof equal);
    for (std::size_t p = planes_; p-- > 0;) {
      const std::uint64_t limit = (half_ >> p & 1) != 0 ? ~std::uint64_t{0} : 0;
      for (std::size_t w = 0; w < kWords; ++w) {
        greater[w] |= equal[w] & plane_[p][w] & ~limit;
        equal[w] &= ~(plane_[p][w] ^ limit);
      }
    }
    std::memcpy(out, greater, sizeof out);
  }

 private:
  std::size_t half_, planes_;
  Words plane_[32] = {};
};

}  // namespace

void pack_signs(std::span<const float> x, std::span<std::uint8_t> bits) {
  TW_ASSERT(bits.size(), ==, bytes_of(x.size()));
  const std::size_t done =
      simd() == Simd::scalar ? 0 : avx2::pack_signs(x.data(), x.size(), bits.data());
  pack_from(done, x, bits.data());
}

double sum_abs(std::span<const float> x) {
  double lanes[kLanes] = {};
  const std::size_t done = simd() == Simd::scalar ? 0 : avx2::sum_abs(x.data(), x.size(), lanes);
  return sum_from(done, x, lanes);
}

double accumulate_sum_abs(std::span<float> memory, std::span<const float> x) {
  TW_ASSERT(memory.size(), ==, x.size());
  double lanes[kLanes] = {};
  const std::size_t done = simd() == Simd::scalar
                               ? 0
                               : avx2::accumulate_sum_abs(memory.data(), x.data(), x.size(), lanes);
  return accumulate_from(done, memory, x, lanes);
}

SignSums sums_by_sign(std::span<const float> x) { return reference::sums_by_sign(x); }

void pack_signs_residual(std::span<float> x, SignValues values, std::span<std::uint8_t> bits) {
  TW_ASSERT(bits.size(), ==, bytes_of(x.size()));
  const std::size_t done = simd() == Simd::scalar
                               ? 0
                               : avx2::pack_signs_residual(x.data(), x.size(), values, bits.data());
  residual_from(done, x, values, bits.data());
}

void decode_signs(std::span<const std::uint8_t> bits, SignValues values, std::span<float> out,
                  Write mode) {
  check_decoded(bits.size(), out.size());
  const std::size_t done = simd() == Simd::scalar ? 0
                                                  : avx2::decode_signs(bits.data(), out.size(),
                                                                       values, out.data(), mode);
  decode_from(done, bits.data(), values, out, mode);
}

void majority_of_signs(std::span<const std::span<const std::uint8_t>> votes, std::int64_t count,
                       std::span<std::uint8_t> out) {
  const auto bytes = static_cast<std::size_t>(sign_bytes(count));
  TW_ASSERT(out.size(), ==, bytes);
  for (const auto vote : votes) check_decoded(vote.size(), static_cast<std::size_t>(count));
  VoteCounter counter(votes.size());
  VoteCounter::Words words;
  for (std::size_t at = 0; at < bytes; at += sizeof words) {
    const std::size_t some = std::min(sizeof words, bytes - at);
    counter.clear();
    for (const auto vote : votes) {
      if (some < sizeof words) std::memset(words, 0, sizeof words);
      std::memcpy(words, vote.data() + at, some);
      counter.add(words);
    }
    counter.decide(words);
    std::memcpy(out.data() + at, words, some);
  }
  if (count % 8 != 0) out[bytes - 1] &= static_cast<std::uint8_t>((1U << (count % 8)) - 1);
}

namespace reference {

void pack_signs(std::span<const float> x, std::span<std::uint8_t> bits) {
  TW_ASSERT(bits.size(), ==, bytes_of(x.size()));
  pack_from(0, x, bits.data());
}

double sum_abs(std::span<const float> x) {
  double lanes[kLanes] = {};
  return sum_from(0, x, lanes);
}

double accumulate_sum_abs(std::span<float> memory, std::span<const float> x) {
  TW_ASSERT(memory.size(), ==, x.size());
  double lanes[kLanes] = {};
  return accumulate_from(0, memory, x, lanes);
}

SignSums sums_by_sign(std::span<const float> x) {
  double other[kLanes] = {}, negative[kLanes] = {};
  SignSums sums;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool below = x[i] < 0;
    other[lane_of(i)] += below ? 0 : x[i];
    negative[lane_of(i)] += below ? x[i] : 0;
    sums.negatives += below;
  }
  sums.other = fold_lanes(other);
  sums.negative = fold_lanes(negative);
  return sums;
}

void pack_signs_residual(std::span<float> x, SignValues values, std::span<std::uint8_t> bits) {
  TW_ASSERT(bits.size(), ==, bytes_of(x.size()));
  residual_from(0, x, values, bits.data());
}

void decode_signs(std::span<const std::uint8_t> bits, SignValues values, std::span<float> out,
                  Write mode) {
  check_decoded(bits.size(), out.size());
  decode_from(0, bits.data(), values, out, mode);
}

void majority_of_signs(std::span<const std::span<const std::uint8_t>> votes, std::int64_t count,
                       std::span<std::uint8_t> out) {
  const auto n = static_cast<std::size_t>(count);
  TW_ASSERT(out.size(), ==, bytes_of(n));
  std::vector<std::uint8_t> bits(out.size());
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t negative = 0;
    for (const auto vote : votes) negative += bit_at(vote.data(), i);
    bits[i / 8] = static_cast<std::uint8_t>(
        bits[i / 8] | static_cast<unsigned>(2 * negative > votes.size()) << (i % 8));
  }
  std::copy(bits.begin(), bits.end(), out.begin());
}

}  // namespace reference

}  // namespace thinwire::kernels
