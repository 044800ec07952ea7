// SPDX-License-Identifier: Apache-2.0
// Uniform levels between the least and the largest of a few values, and levels of one width that
// keep a bound. Plain loops, which the compiler makes vector code of where it can.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/codec/write.h"

namespace thinwire::kernels {

struct Range {
  float least = 0, largest = 0;
};
/// Of no values: 0 and 0. NaNs make both NaN.
Range range_of(std::span<const float> x);

/// out = or += by * (range.least + field * step), 2^bits - 1 steps in the range; fields as
/// pack_fields() of levels.h leaves them, `bits` in [1, 15]. DataError for a wrong number of bytes,
/// bits past the last field, or a range that is not finite or upside down.
void decode_range(std::span<const std::uint8_t> packed, int bits, Range range, float by,
                  std::span<float> out, Write mode);

/// Elements that share a width in the bounded code.
inline constexpr std::size_t kBoundedBlock = 64;
/// At most so many bytes for `count` elements.
constexpr std::int64_t bounded_bytes(std::int64_t count) {
  return 4 + (count + 63) / 64 + 4 * count;
}
/// Every value decodes to within `bound` of itself, and 0 to 0. Appends to `out`: the step, 255/128
/// of the bound (f32); then for each block a byte, its width in bits, and its levels x / step,
/// rounded, packed in so many bits, half of 2^width added; 0 bits where all are 0. Where levels
/// would need more than 16 bits the width says 32 and the values follow as they are. bound >= 0;
/// with 0 nothing is lost.
void encode_bounded(std::span<const float> x, float bound, std::vector<std::uint8_t>& out);
/// out = or += by * values. DataError for bytes that encode_bounded() does not make.
void decode_bounded(std::span<const std::uint8_t> bytes, float by, std::span<float> out,
                    Write mode);

}  // namespace thinwire::kernels
