// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: signs.h in AVX2, over the first elements. Each does a whole number of blocks
// and returns how many elements those were; the plain loops do the rest, with the same lanes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/kernels/signs.h"

namespace thinwire::kernels::avx2 {

std::size_t pack_signs(const float* x, std::size_t count, std::uint8_t* bits);
std::size_t sum_abs(const float* x, std::size_t count, double (&lanes)[kLanes]);
std::size_t accumulate_sum_abs(float* memory, const float* x, std::size_t count,
                               double (&lanes)[kLanes]);
std::size_t pack_signs_residual(float* x, std::size_t count, SignValues values, std::uint8_t* bits);
std::size_t decode_signs(const std::uint8_t* bits, std::size_t count, SignValues values, float* out,
                         Write mode);

}  // namespace thinwire::kernels::avx2
