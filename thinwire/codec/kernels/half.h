// SPDX-License-Identifier: Apache-2.0
// Two bytes an element: f16 and bf16, rounded to nearest, ties to even. Values beyond the largest
// f16 become infinite, NaNs stay NaNs. Decoding is exact.
#pragma once
#include <cstdint>
#include <span>

#include "thinwire/codec/write.h"

namespace thinwire::kernels {

enum class Half : std::uint8_t { f16, bf16 };

void encode_half(Half format, std::span<const float> x, std::span<std::uint16_t> out);

/// Encodes and leaves in x what the decoded values miss. Where that is infinite or no number (an
/// element beyond the largest f16, say), x keeps just that.
void encode_half_residual(Half format, std::span<float> x, std::span<std::uint16_t> out);

void decode_half(Half format, std::span<const std::uint16_t> in, std::span<float> out, Write mode);

/// The same in plain loops, one element after the other.
namespace reference {
void encode_half(Half format, std::span<const float> x, std::span<std::uint16_t> out);
void encode_half_residual(Half format, std::span<float> x, std::span<std::uint16_t> out);
void decode_half(Half format, std::span<const std::uint16_t> in, std::span<float> out, Write mode);
}  // namespace reference

}  // namespace thinwire::kernels
