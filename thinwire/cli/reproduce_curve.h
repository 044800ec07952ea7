// SPDX-License-Identifier: Apache-2.0
// thinwire reproduce for experiments that are simulated. No torch.
#pragma once
#include <string>
#include <vector>

#include "thinwire/report/curve.h"

namespace thinwire::cli {

struct CurveRun {
  std::vector<std::string> arms;  ///< empty: all
  std::string out, runs;          ///< out: a folder, made; empty: a new one in runs
  bool quick = false, dry_run = false, json = false, markdown = false, quiet = false;
};
/// Simulates, prints, and writes report.html, report.md and result.json. dry_run: only checks.
int run_curves(const CurveExperiment& experiment, const CurveRun& options);

}  // namespace thinwire::cli
