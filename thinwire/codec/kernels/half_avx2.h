// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: half.h in AVX2 and F16C, over the first elements; how many, is returned.
#pragma once
#include <cstddef>

#include "thinwire/codec/kernels/half.h"

namespace thinwire::kernels::avx2 {

/// From so many elements on, an output whose address is a multiple of kLine goes past the caches.
inline constexpr std::size_t kLarge = 1 << 20, kLine = 64;

std::size_t encode_half(Half format, const float* x, std::size_t count, std::uint16_t* out);
std::size_t encode_half_residual(Half format, float* x, std::size_t count, std::uint16_t* out);
std::size_t decode_half(Half format, const std::uint16_t* in, std::size_t count, float* out,
                        Write mode);

}  // namespace thinwire::kernels::avx2
