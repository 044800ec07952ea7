// SPDX-License-Identifier: Apache-2.0
// The rows of `thinwire bench comm`.
#pragma once
#include <string>

#include "thinwire/comm/timing.h"
#include "thinwire/core/json.h"

namespace thinwire::cli {

/// Names, values, units, and ratios to the targets where there are any.
Json row_of(const CommFigures& figures, const std::string& comm, int ranks);
/// What is missed in a row, in words; empty: nothing.
std::string missed(const Json& row);

}  // namespace thinwire::cli
