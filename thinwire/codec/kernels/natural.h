// SPDX-License-Identifier: Apache-2.0
// Powers of two: |x| is rounded to the power below or above by chance, so that the expectation is
// |x|. A byte an element is the exponent as f32 holds it: e stands for 2^(e - 127), 0 for 0 and 255
// for no number. Signs travel apart, see signs.h.
// Element i draws the upper 23 bits of word w of block 8 (i / 32) + b, where i % 32 = 8 w + b:
// blocks are those of the key's Rng, of 7 rounds of Philox, as in levels.h.
#pragma once
#include <cstdint>
#include <span>

#include "thinwire/codec/write.h"
#include "thinwire/core/rng.h"

namespace thinwire::kernels {

/// What lies above 2^127 stays there; infinite values and NaNs become 255. Unbiased down to the
/// subnormal values, which become 0 or 2^-126.
void encode_exponents(std::span<const float> x, const RngKey& key,
                      std::span<std::uint8_t> exponents);

/// out = or += the powers, where `signs` has a set bit negative. 255 decodes to a NaN. DataError
/// for a wrong number of bytes.
void decode_exponents(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> signs,
                      std::span<float> out, Write mode);

/// The same in plain loops, one element after the other.
namespace reference {
void encode_exponents(std::span<const float> x, const RngKey& key,
                      std::span<std::uint8_t> exponents);
void decode_exponents(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> signs,
                      std::span<float> out, Write mode);
}  // namespace reference

}  // namespace thinwire::kernels
