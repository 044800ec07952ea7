// SPDX-License-Identifier: Apache-2.0
// Looks for values that are not finite, on the way of a copy that has to be made anyway.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace thinwire {

/// Copies `from` into `to` (same shape and dtype) and returns how many of its values are not finite
/// (a complex number is two values; types without such values have none). As fast as a copy: memory
/// is read and written once, except where strides differ or a value is marked as conjugated.
std::int64_t copy_counting_not_finite(const at::Tensor& to, const at::Tensor& from);

/// The count alone: one pass of reading.
std::int64_t count_not_finite(const at::Tensor& values);

}  // namespace thinwire
