// SPDX-License-Identifier: Apache-2.0
// The torch that this program runs with: its versions and its threads. No torch in this header.
#pragma once
#include <cstdint>

#include "thinwire/core/json.h"

namespace thinwire {

/// {"torch", "blas", "mkldnn", "openmp", "instructions"}, as far as torch says; for run.json and
/// thinwire doctor.
Json torch_versions();
/// Compute threads of the calling thread's operations.
void set_compute_threads(std::int64_t threads);
std::int64_t compute_threads();

}  // namespace thinwire
