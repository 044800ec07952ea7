// SPDX-License-Identifier: Apache-2.0
// What a training leaves behind while it runs: the run folder, a log a rank, rows of metrics, the
// progress line, and at the end the summary. No torch.
#pragma once
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/report/progress.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/train/team.h"

namespace thinwire {

struct TrainConfig;

/// One step as the record sees it: of all ranks, times of this one.
struct StepRecord {
  std::int64_t step = 0;  ///< steps done with it
  double loss = 0, accuracy = 0, learning_rate = 0;
  Seconds step_s = 0, exposed_s = 0;
  std::int64_t samples = 0;
};

struct TestResult {
  double loss = 0, accuracy = 0;
};

class RunRecord {
 public:
  struct Length {
    std::int64_t first_step = 0, steps = 0, steps_per_epoch = 1;
  };
  /// `out`: where rank 0 shows progress; null: nowhere. `sample`: the word for samples. The team
  /// outlives the record.
  RunRecord(Team& team, std::FILE* out, std::string sample);

  /// Collective: rank 0 makes the folder and writes what the run begins with; the others open it.
  void open(const TrainConfig& config, const RunInfo& start);
  /// A line for people: into the log, and on rank 0 above the progress line.
  void say(const std::string& text);
  /// Steps begin. `samples` and `train_s`: what came before, in a run that is resumed.
  void begin(const Length& length, std::int64_t samples, Seconds train_s);
  void step(const StepRecord& step);
  /// After `step` steps another plan is in place: the summary's medians and bytes a step are of the
  /// steps since.
  void plan_changed(std::int64_t step);
  /// Bytes that no step has sent (a measurement): they do not count in the bytes a step.
  void leave_out(Bytes sent) { sent_before_plan_ += sent; }
  /// Writes the steps since the last row, and the test result if there is one, as a row of metrics.
  void row(std::int64_t step, const std::optional<TestResult>& test);
  /// Copies the rows of an earlier run up to `step`, so that the curves begin where it began.
  void copy_rows(const std::string& metrics_path, std::int64_t step);
  void trace(Trace events, std::int64_t last_steps);
  RunSummary summary(std::int64_t step, const std::optional<TestResult>& test) const;
  /// Collective. The end: rank 0 shows the last state, writes run.json and, of the traces of all
  /// ranks, trace.json.
  void close(RunInfo info);
  void failed(RunInfo info, const std::string& why);

  double mean_loss() const;  ///< since the last row
  std::int64_t samples() const { return samples_; }
  Seconds train_s() const { return train_s_; }
  const std::optional<RunFolder>& folder() const { return folder_; }

 private:
  bool leads() const { return team_.rank() == 0; }
  /// Since the last row.
  struct Window {
    double loss = 0, accuracy = 0, learning_rate = 0;
    Seconds step_s = 0, exposed_s = 0;
    std::int64_t steps = 0, samples = 0;
  };

  Team& team_;
  Progress progress_;
  std::optional<RunFolder> folder_;
  std::ofstream log_;
  Length length_;
  Window window_;
  double smooth_loss_ = 0;
  std::int64_t samples_ = 0, samples_before_ = 0;
  Seconds train_s_ = 0, train_s_before_ = 0;
  Bytes sent_before_ = 0, sent_before_plan_ = 0;  ///< plan: the present one
  std::int64_t plan_step_ = 0;
  std::vector<double> step_s_, compute_s_, exposed_s_;
};

}  // namespace thinwire
