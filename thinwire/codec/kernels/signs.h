// SPDX-License-Identifier: Apache-2.0
// One bit an element: its sign. Bit i of the payload is bit i % 8 of byte i / 8 and is set where
// x[i] < 0; zeros of either sign and NaNs count as positive. Bits past the last element are 0.
// Two values say what a clear and a set bit stand for, so that one set of kernels serves a scaled
// sign (scale, -scale) and the two means of one-bit codecs.
// Spans that belong together must have matching lengths (checked as our own bugs are).
#pragma once
#include <cstdint>
#include <span>

#include "thinwire/codec/write.h"

namespace thinwire::kernels {

struct SignValues {
  float other = 1;      ///< of a clear bit
  float negative = -1;  ///< of a set bit
};
inline SignValues scaled_signs(float scale) { return {scale, -scale}; }

/// Sums by sign, for two means. Sums are in double, in the lanes of lanes.h.
struct SignSums {
  double other = 0, negative = 0;
  std::int64_t negatives = 0;  ///< how many elements are negative
};

/// Bytes of the bits of `count` elements.
constexpr std::int64_t sign_bytes(std::int64_t count) { return (count + 7) / 8; }

void pack_signs(std::span<const float> x, std::span<std::uint8_t> bits);

/// The sum of |x|, in double, in the fixed order of lanes.h.
double sum_abs(std::span<const float> x);

/// memory += x, and the sum of the new |memory|, in one pass.
double accumulate_sum_abs(std::span<float> memory, std::span<const float> x);

SignSums sums_by_sign(std::span<const float> x);

/// Packs the signs of x and leaves in x what the decoded values miss: x -= value of its bit.
void pack_signs_residual(std::span<float> x, SignValues values, std::span<std::uint8_t> bits);

/// The decoder. Any bits decode; DataError if there are too few or too many bytes.
void decode_signs(std::span<const std::uint8_t> bits, SignValues values, std::span<float> out,
                  Write mode);

/// The majority of several packed vectors of `count` elements: a bit is set where more than half of
/// the votes have it set, so a tie is positive. `out` may be one of the votes.
void majority_of_signs(std::span<const std::span<const std::uint8_t>> votes, std::int64_t count,
                       std::span<std::uint8_t> out);

/// The same in plain loops, one element after the other.
namespace reference {
void pack_signs(std::span<const float> x, std::span<std::uint8_t> bits);
double sum_abs(std::span<const float> x);
double accumulate_sum_abs(std::span<float> memory, std::span<const float> x);
SignSums sums_by_sign(std::span<const float> x);
void pack_signs_residual(std::span<float> x, SignValues values, std::span<std::uint8_t> bits);
void decode_signs(std::span<const std::uint8_t> bits, SignValues values, std::span<float> out,
                  Write mode);
void majority_of_signs(std::span<const std::span<const std::uint8_t>> votes, std::int64_t count,
                       std::span<std::uint8_t> out);
}  // namespace reference

}  // namespace thinwire::kernels
