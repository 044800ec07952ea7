// SPDX-License-Identifier: Apache-2.0
// The report a person opens: one HTML file with everything in it, no request to anywhere.
#pragma once
#include <span>
#include <string>

#include "thinwire/report/run_folder.h"

namespace thinwire {

/// One run, or several side by side; ratios are against the first. At least one run (ConfigError).
std::string html_report(std::span<const RunData> runs);
/// What stands at the top: what was reached, in what time, and what the network cost; one line a
/// run.
std::string verdict(std::span<const RunData> runs);
/// Reads the run and writes report.html into its folder; returns the path.
std::string write_report(const std::string& run_folder);

}  // namespace thinwire
