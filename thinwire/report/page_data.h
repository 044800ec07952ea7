// SPDX-License-Identifier: Apache-2.0
// What the page's script draws: curves thinned to what a screen can show, and the events of a few
// chosen steps.
#pragma once
#include <span>

#include "thinwire/report/run_folder.h"

namespace thinwire {

/// {"runs": [{"name", "train": [...], "test": [...], "speed": [...], "trace": {...} or null}]}
Json page_data(std::span<const RunData> runs);

}  // namespace thinwire
