// SPDX-License-Identifier: Apache-2.0
// A whole training as the command line runs it, on one rank: data, model, loop, checkpoints, run
// folder, report. No torch in this header.
#pragma once
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/core/error.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/train/config.h"

namespace thinwire {

struct Dataset;

struct TrainJob {
  TrainConfig config;
  std::string resume;                ///< a checkpoint, or a run folder; empty: from the start
  std::vector<std::string> command;  ///< for run.json
  std::FILE* out = nullptr;          ///< where rank 0 shows progress; null: silent
  std::function<int()> stop_signal;  ///< asked once a step; not 0 ends the run after it
  /// What config.data names, where the caller has it already; null: it is read.
  std::shared_ptr<const Dataset> data = nullptr;
};

struct TrainOutcome {
  RunSummary summary;
  std::string folder, report, checkpoint;
  std::string data;     ///< which data that was: name, files or generated, sizes
  int stop_signal = 0;  ///< not 0: interrupted by it, and saved
};

/// The loss is no number any more.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// ConfigError for the names that validate() cannot look up: model, optimizer, form; and for a plan
/// file that cannot be read, DataError for one that is malformed.
void check_names(const TrainConfig& config);

/// Collective over `world` (null: one rank). Every rank gets the outcome.
TrainOutcome run_training(const TrainJob& job, Comm* world);

/// The configuration that a checkpoint was trained with; the defaults for a bare .safetensors file.
TrainConfig config_of_checkpoint(const std::string& path);

struct CheckpointState;
/// What goes on otherwise than before, when a training with `config` resumes this checkpoint on
/// `ranks` ranks; a sentence each.
std::vector<std::string> resume_notes(const CheckpointState& state, const TrainConfig& config,
                                      int ranks);

struct EvalOutcome {
  std::string checkpoint, model, data;
  std::int64_t step = -1;  ///< -1: not known
  std::int64_t samples = 0;
  double accuracy = 0, loss = 0;
};
/// Evaluates a checkpoint (of a run folder the best one, or tensors in a .safetensors file, whose
/// model `config` names) on the test set of `config.data`. Collective.
EvalOutcome run_evaluation(const std::string& path, const TrainConfig& config, Comm* world);

}  // namespace thinwire
