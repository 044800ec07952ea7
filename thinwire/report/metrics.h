// SPDX-License-Identifier: Apache-2.0
// Measurements over a run: one row a step or an evaluation, as JSON lines for programs and as
// TensorBoard events.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/core/json.h"
#include "thinwire/core/types.h"

namespace thinwire {

/// One row of metrics.jsonl. A value that was not measured is absent; one that is not a number (a
/// loss that diverged) is written as null and read back as NaN.
struct MetricsRow {
  std::int64_t step = 0;        ///< steps done when the row was taken
  std::optional<double> epoch;  ///< epochs done, with fraction
  std::optional<Seconds>
      time_s;                  ///< training time since the run began, evaluation and saving apart
  std::optional<double> loss;  ///< mean over ranks since the row before
  std::optional<double> accuracy;  ///< on training samples, 0 to 1
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;  ///< 0 to 1
  std::optional<double> learning_rate;
  std::optional<double> samples_per_s;  ///< of all ranks together
  std::optional<Seconds> step_s;        ///< mean duration of a step since the row before
  std::optional<Seconds> compute_s;     ///< of it: forward, backward and update
  std::optional<Seconds> exposed_s;     ///< of it: this rank only waits for exchanges
  std::optional<Bytes> wire_bytes;      ///< sent by this rank since the run began, headers included
};

Json to_json(const MetricsRow& row);
MetricsRow metrics_row_from_json(const Json& json, std::string_view source);  ///< DataError

/// Appends lines to a file; each is one write to a file opened for appending, so that readers and
/// other writers never see half a line and nothing is lost when the process dies.
class JsonLinesWriter {
 public:
  explicit JsonLinesWriter(std::string path);  ///< ConfigError if it cannot be opened
  ~JsonLinesWriter();
  JsonLinesWriter(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter& operator=(JsonLinesWriter&& other) noexcept;
  void write(const Json& value);               ///< ConfigError if the system refuses (disk full)
  void write_lines(const std::string& lines);  ///< whole lines, each ended, in one write
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// All lines of the file. A last line without its end (the writer died in it) is left out; any
/// other malformed line is a DataError that names file and line. ConfigError if the file cannot be
/// read.
std::vector<Json> read_json_lines(const std::string& path);
std::vector<MetricsRow> read_metrics(const std::string& path);

/// TensorBoard's event file: scalars only. Encoded here (three messages, a dozen fields); no
/// dependency.
class TensorBoardWriter {
 public:
  /// Makes `folder` and in it a file named as TensorBoard expects. ConfigError if it cannot.
  explicit TensorBoardWriter(const std::string& folder);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  /// Tags and values at one step; on disk when the call returns.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  void write(const MetricsRow& row);  ///< tags "train/loss", "test/accuracy", "speed/step_s", ...
  const std::string& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::string path_;
  int descriptor_ = -1;
};

/// CRC-32C (Castagnoli), and as TensorFlow's record files mask it.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace thinwire
