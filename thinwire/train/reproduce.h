// SPDX-License-Identifier: Apache-2.0
// Carries out experiments (thinwire/report/experiment.h): trains every arm with every seed, one
// after the other, and keeps what came out in a folder, so that an interrupted or divided
// experiment goes on where it was. No torch in this header.
//
//   OUT/measured.json   every run so far, rewritten after each
//   OUT/runs/ARM-seedN  the run folders of `thinwire train`
//   OUT/report.html, report.md, result.json, curves.html   written by write_outcome
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "thinwire/report/experiment.h"
#include "thinwire/train/config.h"
#include "thinwire/train/job.h"

namespace thinwire {

/// The experiments that are compiled in, sorted.
std::vector<std::string> experiment_names();
/// By name, or a TOML file by its path (with '/' or ending in .toml); of either kind
/// (thinwire/report/curve.h has the simulated one). ConfigError that names the nearest.
struct ExperimentText {
  std::string text, source;
};
ExperimentText experiment_text(const std::string& name);
/// One that trains.
Experiment find_experiment(const std::string& name);

/// What an arm trains with at a seed. ConfigError that names file and line of a wrong option.
TrainConfig config_of(const Experiment& experiment, const Arm& arm, std::int64_t seed, bool quick);

struct ReproduceJob {
  bool quick = false;
  std::int64_t seeds = 0;         ///< 0: as the experiment says
  std::vector<std::string> arms;  ///< empty: all
  std::string out;                ///< folder; made, or gone on with where it holds measured.json
  /// Trains, on all ranks; throws what failed. DivergedError counts as a result.
  std::function<TrainOutcome(const TrainConfig&)> train;
  /// Before a run, with the number of runs done and in all.
  std::function<void(const TrainConfig&, int done, int all)> begin;
  std::function<void(const std::string&)> say;  ///< a line for people
};
struct Reproduced {
  Measured measured;
  int stop_signal = 0;  ///< not 0: interrupted by it; the run under way is not counted
};
/// The command that does the same again, without what only this machine has.
std::string command_of(const Experiment& experiment, const ReproduceJob& job);
/// ConfigError where `out` holds runs with other settings.
Reproduced reproduce(const Experiment& experiment, const ReproduceJob& job);
/// Page, section, object and curves of what has been measured, into `out`.
void write_outcome(const Experiment& experiment, const Measured& measured, const std::string& out);

}  // namespace thinwire
