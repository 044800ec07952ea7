// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/run_record.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "thinwire/core/median.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/text.h"
#include "thinwire/train/config.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

Bytes peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes{usage.ru_maxrss} * 1024;
}

/// "2026-01-31".
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[16] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", &local);
  return text;
}

}  // namespace

RunRecord::RunRecord(Team& team, std::FILE* out, std::string sample)
    : team_(team),
      progress_({.out = team.rank() == 0 ? out : nullptr, .sample = std::move(sample)}) {}

void RunRecord::open(const TrainConfig& config, const RunInfo& start) {
  std::string path;
  if (leads()) {
    const std::string name =
        config.name.empty() ? today() + "-" + parse_spec(config.model).name : config.name;
    folder_ = RunFolder::create(config.runs, name);
    path = fs::absolute(folder_->path()).string();
    folder_->write_info(start);
    write_text(folder_->file("config.toml"), to_toml(config));
    write_text(folder_->file("command.txt"), join(start.command, " ") + '\n');
    write_text(folder_->file("versions.json"), start.versions.dump(2) + '\n');
  }
  path = team_.from_first("run folder", path);
  // A rank on another machine keeps its log there, in a folder of the same name.
  std::error_code error;
  if (!leads()) {
    fs::create_directories(path, error);
    if (fs::is_directory(path)) folder_ = RunFolder::open(path);
  }
  if (folder_) log_.open(folder_->log_path(team_.rank()), std::ios::app);
}

void RunRecord::say(const std::string& text) {
  if (log_.is_open()) log_ << text << '\n' << std::flush;
  progress_.line(text);
}

void RunRecord::begin(const Length& length, std::int64_t samples, Seconds train_s) {
  length_ = length;
  samples_ = samples_before_ = samples;
  train_s_ = train_s_before_ = train_s;
  plan_changed(length.first_step);
  sent_before_ = sent_before_plan_;
}

void RunRecord::plan_changed(std::int64_t step) {
  plan_step_ = step;
  sent_before_plan_ = team_.sent_bytes();
  for (auto* times : {&step_s_, &exposed_s_, &compute_s_}) times->clear();
}

void RunRecord::step(const StepRecord& step) {
  const Seconds compute_s = step.step_s - step.exposed_s;
  train_s_ += step.step_s;
  samples_ += step.samples;
  step_s_.push_back(step.step_s);
  exposed_s_.push_back(step.exposed_s);
  compute_s_.push_back(compute_s);
  window_.loss += step.loss;
  window_.accuracy += step.accuracy;
  window_.learning_rate = step.learning_rate;
  window_.step_s += step.step_s;
  window_.exposed_s += step.exposed_s;
  window_.samples += step.samples;
  ++window_.steps;
  smooth_loss_ =
      step.step == length_.first_step + 1 ? step.loss : 0.95 * smooth_loss_ + 0.05 * step.loss;
  if (!leads()) return;
  const auto n = static_cast<double>(window_.steps);
  const auto sent = static_cast<double>(team_.sent_bytes() - sent_before_);
  const std::int64_t each = length_.steps_per_epoch;
  progress_.update({.step = step.step,
                    .steps = length_.steps,
                    .epoch = static_cast<int>((step.step - 1) / each) + 1,
                    .epochs = static_cast<int>((length_.steps + each - 1) / each),
                    .loss = smooth_loss_,
                    .accuracy = window_.accuracy / n,
                    .samples_per_s = static_cast<double>(window_.samples) / window_.step_s,
                    .bytes_per_s = team_.size() > 1
                                       ? std::optional(sent / (train_s_ - train_s_before_))
                                       : std::nullopt,
                    .step_s = window_.step_s / n,
                    .exposed_s = window_.exposed_s / n});
}

double RunRecord::mean_loss() const {
  return window_.steps ? window_.loss / static_cast<double>(window_.steps) : 0;
}

void RunRecord::row(std::int64_t step, const std::optional<TestResult>& test) {
  if (leads() && folder_) {
    MetricsRow row{
        .step = step,
        .epoch = static_cast<double>(step) / static_cast<double>(length_.steps_per_epoch),
        .time_s = train_s_};
    if (window_.steps > 0) {
      const auto n = static_cast<double>(window_.steps);
      row.loss = window_.loss / n;
      row.accuracy = window_.accuracy / n;
      row.learning_rate = window_.learning_rate;
      row.samples_per_s = static_cast<double>(window_.samples) / window_.step_s;
      row.step_s = window_.step_s / n;
      row.compute_s = (window_.step_s - window_.exposed_s) / n;
      row.exposed_s = window_.exposed_s / n;
      row.wire_bytes = team_.sent_bytes() - sent_before_;
    }
    if (test) {
      row.test_loss = test->loss;
      row.test_accuracy = test->accuracy;
    }
    folder_->append(row);
  }
  window_ = {};
}

void RunRecord::copy_rows(const std::string& metrics_path, std::int64_t step) {
  if (!leads() || !fs::exists(metrics_path)) return;
  for (const auto& row : read_metrics(metrics_path))
    if (row.step <= step) folder_->append(row);
}

void RunRecord::trace(Trace events, std::int64_t last_steps) {
  if (!folder_ || last_steps == 0) return;
  std::int64_t last = 0;
  for (const auto& event : events) last = std::max(last, event.step);
  std::erase_if(events, [&](const Event& e) { return e.step <= last - last_steps; });
  if (!events.empty()) folder_->append_trace(team_.rank(), events);
}

RunSummary RunRecord::summary(std::int64_t step, const std::optional<TestResult>& test) const {
  RunSummary out;
  if (test) {
    out.test_accuracy = test->accuracy;
    out.test_loss = test->loss;
  }
  out.steps = step;
  out.samples = samples_;
  out.train_s = train_s_;
  out.step_s = median(step_s_);
  out.compute_s = median(compute_s_);
  out.exposed_s = median(exposed_s_);
  const std::int64_t steps = step - plan_step_;
  if (steps > 0)
    out.wire_bytes_per_step =
        static_cast<double>(team_.sent_bytes() - sent_before_plan_) / static_cast<double>(steps);
  if (const Seconds trained = train_s_ - train_s_before_; trained > 0)
    out.samples_per_s = static_cast<double>(samples_ - samples_before_) / trained;
  out.peak_memory_bytes = peak_memory();
  return out;
}

void RunRecord::close(RunInfo info) {
  // Each rank has written its trace before rank 0 reads them.
  team_.texts("the run is over", "");
  if (!leads()) return;
  progress_.finish();
  folder_->write_info(info);
  const TraceFile trace = read_run(folder_->path()).trace;
  if (!trace.events.empty()) write_trace(folder_->file("trace.json"), trace);
}

void RunRecord::failed(RunInfo info, const std::string& why) {
  if (log_.is_open()) log_ << "failed: " << why << std::endl;
  if (leads() && folder_) folder_->write_info(info);
}

}  // namespace thinwire
