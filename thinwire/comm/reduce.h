// SPDX-License-Identifier: Apache-2.0
// Combining kernels of the transports: spans in memory, rank order, no torch.
#pragma once
#include <span>

#include "thinwire/core/types.h"

namespace thinwire {

/// out[i] = parts[0][i] op parts[1][i] op ... in this order, in one pass; `mean` divides by
/// parts.size() at the end, f16 and bf16 accumulate in f32 and round once (to nearest even). `out`
/// may be one of the parts. UnsupportedError for a pair of op and dtype that makes no sense
/// (bit_and on floats, max on complex).
void combine(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
             Combine op);

/// The loops for every processor, type and op: what combine() equals bit for bit, NaNs apart, which
/// stay NaNs.
void combine_plainly(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
                     Combine op);

/// What combining a single part is: a copy; the two may overlap, and may be null where there are no
/// bytes, which std::memmove does not allow.
void move_bytes(void* to, const void* from, Bytes bytes);

/// Refuses such a pair before anything is sent: the sentence names both.
void check_combine(DType dtype, Combine op);

}  // namespace thinwire
