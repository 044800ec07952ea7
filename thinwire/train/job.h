// SPDX-License-Identifier: Apache-2.0
// A whole training as the command line runs it, on one rank: data, model, loop, checkpoints, run
// folder, report. No torch in this header.
#pragma once
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/train/config.h"

namespace thinwire {

struct TrainJob {
  TrainConfig config;
  std::string resume;                ///< a checkpoint, or a run folder; empty: from the start
  std::vector<std::string> command;  ///< for run.json
  std::FILE* out = nullptr;          ///< where rank 0 shows progress; null: silent
  std::function<int()> stop_signal;  ///< asked once a step; not 0 ends the run after it
};

struct TrainOutcome {
  RunSummary summary;
  std::string folder, report, checkpoint;
  int stop_signal = 0;  ///< not 0: interrupted by it, and saved
};

/// Collective over `world` (null: one rank). Every rank gets the outcome.
TrainOutcome run_training(const TrainJob& job, Comm* world);

/// The configuration that a checkpoint was trained with.
TrainConfig config_of_checkpoint(const std::string& path);

struct EvalOutcome {
  std::string checkpoint, model, data;
  std::int64_t step = 0, samples = 0;
  double accuracy = 0, loss = 0;
};
/// Evaluates a checkpoint (or the best one of a run) on the test set of `config.data`. Collective.
EvalOutcome run_evaluation(const std::string& path, const TrainConfig& config, Comm* world);

/// Compute threads of the calling thread's operations.
void set_compute_threads(std::int64_t threads);
/// torch and its BLAS, for run.json and thinwire doctor.
Json torch_versions();

}  // namespace thinwire
