// SPDX-License-Identifier: Apache-2.0
// A run's folder: everything a run leaves behind, in files that programs and people can read.
//
//   run.json               what ran and what came out (RunInfo), rewritten as a whole
//   metrics.jsonl          one MetricsRow a line, written by rank 0
//   tensorboard/           the same numbers as TensorBoard events
//   trace.jsonl            of rank 0; trace.rank<R>.jsonl of the others
//   trace.json             all of them, for Perfetto
//   log.rank<R>.txt        what each rank said
//   choice.json            with plan=auto what was considered; beside it profile.json,
//   cluster.json,
//                          plan.json
//   checkpoints/           best and last, by the trainer
//   report.html            the report
//
// run.json:
//   {"thinwire_run": 1, "name": "...", "status": "running" | "finished" | "interrupted" | "failed",
//    "started_at": "2026-01-31T12:00:00Z", "command": ["thinwire", "train", ...],
//    "setup": {"model", "data", "parameters", "ranks", "transport", "congestion_control",
//              "grouping", "form", "algorithm", "batch_size", "hosts": ["name", ...]},
//    "configuration": {...effective configuration, nested...},
//    "versions": {"thinwire": "0.1.0", "torch": "...", "blas": "...", "compiler": "...", ...},
//    "summary": {"test_accuracy", "test_loss", "steps", "samples", "train_s", "step_s",
//                "compute_s", "exposed_s", "wire_bytes_per_step", "samples_per_s",
//                "peak_memory_bytes", "predicted_step_s", "predicted_exposed_s",
//                "predicted_bytes_per_step", ...}}
// Every key of setup and summary may be absent; summary is empty until the run ends.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/core/json.h"
#include "thinwire/report/metrics.h"
#include "thinwire/report/trace_json.h"

namespace thinwire {

struct RunSetup {
  std::string model, data, transport, congestion_control, grouping, form,
      algorithm;                                ///< empty: not said
  std::int64_t parameters = 0, batch_size = 0;  ///< 0: not said; batch_size is the global one
  int ranks = 1;
  std::vector<std::string> hosts;
};

struct RunSummary {
  std::optional<double> test_accuracy, test_loss, samples_per_s;
  std::optional<std::int64_t> steps, samples;
  std::optional<Seconds> train_s, step_s, compute_s,
      exposed_s;                              ///< train_s without evaluation; the others: medians
  std::optional<double> wire_bytes_per_step;  ///< sent by one rank, headers included
  std::optional<Bytes> peak_memory_bytes;     ///< of one rank
  std::optional<Seconds> predicted_step_s, predicted_exposed_s;  ///< with plan=auto
  std::optional<double> predicted_bytes_per_step;                ///< headers apart
};

struct RunInfo {
  std::string name;
  std::string status = "running";
  std::string started_at;  ///< UTC, ISO 8601; filled by RunFolder::create
  std::vector<std::string> command;
  RunSetup setup;
  Json configuration = Json::object();
  Json versions = Json::object();  ///< name -> text; build_versions() and what the caller adds
  RunSummary summary;
};

Json to_json(const RunInfo& info);
RunInfo run_info_from_json(const Json& json, std::string_view source);  ///< DataError
Json to_json(const RunSummary&
                 summary);  ///< only what is known; the base of `thinwire train --json`'s last line

/// Writes a run's folder. Rank 0 creates; other ranks open the same path for their traces and logs.
class RunFolder {
 public:
  /// Makes `parent`/`name`, or with -2, -3, ... behind where that exists: nothing is ever
  /// overwritten, not even when two runs start at once. ConfigError if the parent cannot be made or
  /// written.
  static RunFolder create(const std::string& parent, const std::string& name);
  static RunFolder open(const std::string& path);  ///< ConfigError if it is no folder

  const std::string& path() const { return path_; }
  std::string name() const;                       ///< last part of the path
  std::string file(std::string_view name) const;  ///< path of a file in it
  std::string log_path(Rank rank) const;
  std::string trace_path(Rank rank) const;
  std::string checkpoint_folder() const;  ///< made when first asked for

  void write_info(const RunInfo& info);  ///< atomic
  void append(const MetricsRow& row);    ///< metrics.jsonl and TensorBoard; rank 0 only
  /// Appends events to this rank's trace file, with the header line if the file is new.
  void append_trace(Rank rank, const Trace& events, TraceClock clock = TraceClock::measured);

 private:
  explicit RunFolder(std::string path);
  std::string path_;
  std::unique_ptr<JsonLinesWriter> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
};

/// A run as read back. Missing parts are empty and named in `problems`; only an unreadable folder
/// is an error.
struct RunData {
  std::string path;
  RunInfo info;
  std::vector<MetricsRow> metrics;
  TraceFile trace;  ///< of all ranks whose files exist
  Json choice;      ///< choice.json: what plan=auto considered; null: there is none
  std::vector<std::string> problems;
};
RunData read_run(const std::string& path);  ///< ConfigError if it is no run folder (no run.json)

/// thinwire, compiler, build type and sanitizers of this library, as versions for run.json.
Json build_versions();

}  // namespace thinwire
