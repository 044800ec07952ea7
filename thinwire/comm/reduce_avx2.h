// SPDX-License-Identifier: Apache-2.0
// Internal to comm: combine() for sums and means of floats, where the processor has AVX2 and F16C.
#pragma once
#include <span>

#include "thinwire/core/types.h"

namespace thinwire {

/// As combine() with sum or mean; false, and nothing is done, where this processor or type is not
/// covered.
bool sum_avx2(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
              bool mean);

}  // namespace thinwire
