// SPDX-License-Identifier: Apache-2.0
// The part of a run's page that says why the plan is as it is: of runs with plan=auto.
#pragma once
#include <string>

#include "thinwire/report/run_folder.h"

namespace thinwire {

/// The verdict, predicted beside measured, and what was considered; empty where nothing was chosen.
std::string plan_section(const RunData& run);

}  // namespace thinwire
