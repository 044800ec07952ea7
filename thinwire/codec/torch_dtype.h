// SPDX-License-Identifier: Apache-2.0
// Between torch's element types and ours.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

#include "thinwire/core/types.h"

namespace thinwire {

/// Nothing for a type that no message carries (quantised types, float8).
std::optional<DType> dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);

}  // namespace thinwire
