// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/job.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>

#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/report/html.h"
#include "thinwire/report/progress.h"
#include "thinwire/train/checkpoint.h"
#include "thinwire/train/data.h"
#include "thinwire/train/loader.h"
#include "thinwire/train/schedule.h"
#include "thinwire/train/trainer.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

InputForm form_of(const Dataset& data) {
  return {data.kind == SampleKind::text,
          data.channels,
          data.height,
          data.width,
          data.context,
          data.classes};
}

/// A batch as tensors that share its memory.
StepInput tensors_of(const Dataset& data, const Batch& batch, int ranks) {
  StepInput input{
      .count = batch.count, .total = batch.total, .equal_shares = batch.total % ranks == 0};
  if (batch.count == 0) return input;
  auto* targets = const_cast<std::int64_t*>(batch.targets.data());  // from_blob wants no const
  if (data.kind == SampleKind::text) {
    input.inputs = at::from_blob(const_cast<std::int64_t*>(batch.symbols.data()),
                                 {batch.count, data.context}, at::kLong);
    input.targets = at::from_blob(targets, {batch.count, data.context}, at::kLong);
  } else {
    input.inputs = at::from_blob(const_cast<float*>(batch.images.data()),
                                 {batch.count, data.channels, data.height, data.width}, at::kFloat);
    input.targets = at::from_blob(targets, {batch.count}, at::kLong);
  }
  return input;
}

/// This rank's part of the test set, cut so that no sample is counted twice.
Evaluation evaluate(Trainer& trainer, const Dataset& data, std::int64_t batch_size) {
  if (data.test.count == 0) return trainer.evaluate([] { return std::optional<StepInput>(); });
  const Team& team = trainer.team();
  Loader loader(data, data.test,
                {.batch_size = batch_size * team.size(),
                 .rank = team.rank(),
                 .ranks = team.size(),
                 .shuffle = false,
                 .threads = 0});
  std::int64_t next = 0;
  return trainer.evaluate([&]() -> std::optional<StepInput> {
    if (next == loader.batches_per_epoch()) return {};
    return tensors_of(data, loader.at(next++), team.size());
  });
}

Bytes peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes{usage.ru_maxrss} * 1024;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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

/// One training on one rank, from data to report.
class Job {
 public:
  Job(const TrainJob& job, Comm* world) : job_(job), config_(job.config), world_(world) {}
  TrainOutcome run();

 private:
  void load();
  void make_folder();
  void greet();
  void resume();
  void loop();
  void after_step(const StepReport& report, Seconds load_s);
  void log_row(std::optional<Evaluation> test);
  void evaluate_now();
  void save();
  void finish();
  void summarise();
  void write_trace_file();
  bool leads() const { return rank_ == 0; }
  void say(const std::string& text);
  double epochs_done(std::int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(steps_per_epoch_);
  }
  /// Whether an event that comes every `every` epochs lies in (step - 1, step].
  bool due(double every, std::int64_t step) const {
    return every > 0 &&
           std::floor(epochs_done(step) / every) > std::floor(epochs_done(step - 1) / every);
  }
  RunInfo info(const std::string& status) const;

  TrainJob job_;
  TrainConfig config_;
  Comm* world_;
  int rank_ = 0, ranks_ = 1;
  Dataset data_;
  std::vector<std::string> notices_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Progress> progress_;
  RateSchedule schedule_;
  std::optional<RunFolder> folder_;
  std::ofstream log_;
  std::int64_t steps_per_epoch_ = 1, steps_ = 0, first_step_ = 0, samples_ = 0;
  Seconds train_s_ = 0;
  CheckpointState best_;
  Evaluation last_test_;
  bool tested_ = false;
  std::int64_t saved_step_ = -1;
  std::string checkpoint_;
  int signal_ = 0;
  Bytes sent_before_ = 0;
  std::vector<double> step_s_, compute_s_, exposed_s_;
  // Since the last row of metrics.
  struct Window {
    double loss = 0, accuracy = 0;
    Seconds step_s = 0, compute_s = 0, exposed_s = 0;
    std::int64_t steps = 0, samples = 0;
  } window_;
  double smooth_loss_ = 0;
  RunSummary summary_;
};

void Job::say(const std::string& text) {
  if (log_.is_open()) log_ << text << '\n' << std::flush;
  if (leads() && progress_) progress_->line(text);
}

void Job::load() {
  data_ = load_dataset(parse_spec(config_.data), notices_);
  shorten(data_, config_.samples, config_.test_samples);
  const auto model = make_model(parse_spec(config_.model), form_of(data_),
                                static_cast<std::uint64_t>(config_.seed));
  trainer_ = std::make_unique<Trainer>(
      model, parse_spec(config_.optimizer), cross_entropy(config_.label_smoothing), world_,
      TrainerOptions{.clip_norm = config_.clip_norm,
                     .grouping = config_.grouping,
                     .form = config_.form,
                     .algorithm = config_.algorithm,
                     .seed = static_cast<std::uint64_t>(config_.seed)});
  rank_ = trainer_->team().rank();
  ranks_ = trainer_->team().size();
  loader_ = std::make_unique<Loader>(
      data_, data_.train,
      LoaderOptions{.batch_size = config_.batch_size,
                    .rank = rank_,
                    .ranks = ranks_,
                    .seed = static_cast<std::uint64_t>(config_.seed),
                    .crop_flip = config_.augment == "crop_flip" && data_.kind == SampleKind::image,
                    .threads = static_cast<int>(config_.loader_threads)});
  steps_per_epoch_ = loader_->batches_per_epoch();
  steps_ = config_.steps > 0 ? config_.steps : config_.epochs * steps_per_epoch_;
  schedule_ = make_schedule(parse_spec(config_.schedule), {steps_, steps_per_epoch_});
}

RunInfo Job::info(const std::string& status) const {
  RunInfo info;
  info.status = status;
  info.command = job_.command;
  info.setup.model = config_.model;
  info.setup.data = config_.data;
  info.setup.parameters = parameter_count(*trainer_->model());
  info.setup.ranks = ranks_;
  info.setup.transport = world_ ? world_->caps().name : "none";
  info.setup.congestion_control = world_ ? congestion_control(*world_) : "";
  info.setup.grouping = config_.grouping;
  info.setup.form = config_.form;
  info.setup.algorithm = config_.algorithm;
  info.setup.batch_size = config_.batch_size;
  info.configuration = to_json(config_);
  info.versions = build_versions();
  info.versions.update(torch_versions());
  return info;
}

void Job::make_folder() {
  std::string path;
  if (leads()) {
    const std::string name =
        config_.name.empty() ? today() + "-" + parse_spec(config_.model).name : config_.name;
    folder_ = RunFolder::create(config_.runs, name);
    path = fs::absolute(folder_->path()).string();
    RunInfo start = info("running");
    folder_->write_info(start);
    write_text(folder_->file("config.toml"), to_toml(config_));
    write_text(folder_->file("command.txt"), join(job_.command, " ") + '\n');
    write_text(folder_->file("versions.json"), start.versions.dump(2) + '\n');
  }
  path = trainer_->team().from_first("run folder", path);
  // A rank on another machine keeps its log there, in a folder of the same name.
  std::error_code error;
  if (!leads()) {
    fs::create_directories(path, error);
    if (fs::is_directory(path)) folder_ = RunFolder::open(path);
  }
  if (folder_) log_.open(folder_->log_path(rank_), std::ios::app);
}

void Job::greet() {
  if (leads())
    progress_ = std::make_unique<Progress>(ProgressOptions{
        .out = job_.out, .sample = data_.kind == SampleKind::text ? "texts" : "images"});
  for (const auto& text : notices_) say("note: " + text);
  say(fmt::format("model {}: {} parameters; data {}: {} training and {} test samples ({})",
                  config_.model, parameter_count(*trainer_->model()), data_.name, data_.train.count,
                  data_.test.count, data_.source));
  std::string shares;
  for (Rank r = 0; r < ranks_; ++r)
    shares += fmt::format("{}{}", r ? "+" : "", share_of(config_.batch_size, r, ranks_).count);
  if (ranks_ > 8) shares = fmt::format("about {} a rank", config_.batch_size / ranks_);
  say(fmt::format(
      "{} rank{} over {}; batch {}{}; {} steps, {} an epoch; {} compute thread{} a rank", ranks_,
      ranks_ == 1 ? "" : "s", world_ ? world_->caps().name : "none", config_.batch_size,
      ranks_ > 1 ? " = " + shares : "", steps_, steps_per_epoch_, at::get_num_threads(),
      at::get_num_threads() == 1 ? "" : "s"));
  if (config_.batch_size < ranks_)
    say(fmt::format("note: a batch of {} leaves {} of {} ranks without work", config_.batch_size,
                    ranks_ - config_.batch_size, ranks_));
  if (const std::string how = trainer_->describe(); !how.empty()) say(how);
  if (folder_) say("run folder " + folder_->path());
}

void Job::resume() {
  if (job_.resume.empty()) return;
  const std::string path = find_checkpoint(job_.resume, "last");
  const CheckpointState state = read_checkpoint_state(path);
  load_tensors(trainer_->state(), read_tensors(path + "/model.safetensors"),
               path + "/model.safetensors");
  trainer_->optimizer().load_state(read_tensors(path + "/optimizer.safetensors"));
  trainer_->set_steps_done(state.step);
  first_step_ = state.step;
  samples_ = state.samples;
  train_s_ = state.train_s;
  best_.best_accuracy = state.best_accuracy;
  say(fmt::format("resumed from {} at step {}", path, state.step));
  if (state.ranks != ranks_)
    say(fmt::format(
        "note: {} rank{} before, {} now: batches, their order and the learning rates stay "
        "the same; gradients are summed from other parts, so the last bits differ, and "
        "batch norm sees other local batches",
        state.ranks, state.ranks == 1 ? "" : "s", ranks_));
  for (const auto& option : train_options()) {
    const Json now = to_json(config_)[option.key];
    if (state.config.contains(option.key) && state.config[option.key] != now &&
        option.group != "Output" && option.key != "ranks")
      say(fmt::format("note: {} was {} and is {} now", option.key, state.config[option.key].dump(),
                      now.dump()));
  }
  if (leads()) {
    // The curves of the report begin where the run began.
    const fs::path before = fs::path(path).parent_path().parent_path() / "metrics.jsonl";
    if (fs::exists(before))
      for (const auto& row : read_metrics(before.string()))
        if (row.step <= state.step) folder_->append(row);
  }
}

void Job::loop() {
  sent_before_ = trainer_->team().sent_bytes();
  for (std::int64_t step = first_step_; step < steps_ && signal_ == 0; ++step) {
    const auto begin = Clock::now();
    const Batch& batch = loader_->at(step);
    const Seconds load_s = std::chrono::duration<double>(Clock::now() - begin).count();
    const StepReport report =
        trainer_->step(tensors_of(data_, batch, ranks_), config_.learning_rate * schedule_(step),
                       job_.stop_signal ? job_.stop_signal() : 0);
    samples_ += batch.total;
    window_.samples += batch.total;
    if (!std::isfinite(report.loss))
      throw Error(
          fmt::format("the loss is {} at step {}: training has diverged; try a lower "
                      "learning_rate or clip_norm",
                      report.loss, step));
    after_step(report, load_s);
  }
}

void Job::after_step(const StepReport& report, Seconds load_s) {
  const std::int64_t done = trainer_->steps_done();
  const Seconds step_s = report.step_s + load_s;
  train_s_ += step_s;
  step_s_.push_back(step_s);
  exposed_s_.push_back(report.exposed_s);
  compute_s_.push_back(report.step_s - report.exposed_s);
  window_.loss += report.loss;
  window_.accuracy += report.accuracy;
  window_.step_s += step_s;
  window_.exposed_s += report.exposed_s;
  window_.compute_s += report.step_s - report.exposed_s;
  ++window_.steps;
  signal_ = report.stop_signal;
  smooth_loss_ = done == first_step_ + 1 ? report.loss : 0.95 * smooth_loss_ + 0.05 * report.loss;
  if (leads()) {
    const auto n = static_cast<double>(window_.steps);
    const auto sent = static_cast<double>(trainer_->team().sent_bytes() - sent_before_);
    progress_->update(
        {.step = done,
         .steps = steps_,
         .epoch = static_cast<int>((done - 1) / steps_per_epoch_) + 1,
         .epochs = static_cast<int>((steps_ + steps_per_epoch_ - 1) / steps_per_epoch_),
         .loss = smooth_loss_,
         .accuracy = window_.accuracy / n,
         .samples_per_s = static_cast<double>(window_.samples) / window_.step_s,
         .bytes_per_s = ranks_ > 1 ? std::optional(sent / train_s_) : std::nullopt,
         .step_s = window_.step_s / n,
         .exposed_s = window_.exposed_s / n});
  }
  const bool end = done == steps_ || signal_ != 0;
  if (due(config_.eval_every, done) || (end && signal_ == 0))
    evaluate_now();
  else if (done % config_.log_every == 0 || end)
    log_row({});
  if (due(config_.checkpoint_every, done) || end) save();
}

void Job::log_row(std::optional<Evaluation> test) {
  if (leads() && folder_) {
    MetricsRow row{.step = trainer_->steps_done(),
                   .epoch = epochs_done(trainer_->steps_done()),
                   .time_s = train_s_};
    if (window_.steps > 0) {
      const auto n = static_cast<double>(window_.steps);
      row.loss = window_.loss / n;
      row.accuracy = window_.accuracy / n;
      row.learning_rate = config_.learning_rate * schedule_(row.step - 1);
      row.samples_per_s = static_cast<double>(window_.samples) / window_.step_s;
      row.step_s = window_.step_s / n;
      row.compute_s = window_.compute_s / n;
      row.exposed_s = window_.exposed_s / n;
      row.wire_bytes = trainer_->team().sent_bytes() - sent_before_;
    }
    if (test) {
      row.test_loss = test->loss;
      row.test_accuracy = test->accuracy;
    }
    folder_->append(row);
  }
  window_ = {};
}

void Job::evaluate_now() {
  if (data_.test.count == 0) return log_row({});
  last_test_ = evaluate(*trainer_, data_, config_.eval_batch_size);
  tested_ = true;
  const std::int64_t done = trainer_->steps_done();
  const double train_loss = window_.steps ? window_.loss / static_cast<double>(window_.steps) : 0;
  log_row(last_test_);
  best_.step = last_test_.accuracy > best_.best_accuracy ? done : best_.step;
  best_.best_accuracy = std::max(best_.best_accuracy, last_test_.accuracy);
  say(
      fmt::format("epoch {:.4g}: training loss {:.4f}, test accuracy {:.2f} %, test loss {:.4f}, "
                  "{} of training",
                  epochs_done(done), train_loss, 100 * last_test_.accuracy, last_test_.loss,
                  format_seconds(train_s_)));
}

void Job::save() {
  const std::int64_t done = trainer_->steps_done();
  if (!leads() || saved_step_ == done) return;
  saved_step_ = done;
  CheckpointState state{.step = done,
                        .samples = samples_,
                        .ranks = ranks_,
                        .train_s = train_s_,
                        .best_accuracy = best_.best_accuracy,
                        .best_step = best_.step,
                        .config = to_json(config_)};
  const bool best = best_.step == done || !tested_;
  checkpoint_ = save_checkpoint(folder_->checkpoint_folder(), state, trainer_->state(),
                                trainer_->optimizer().state(), config_.keep, best);
}

void Job::summarise() {
  if (tested_) {
    summary_.test_accuracy = last_test_.accuracy;
    summary_.test_loss = last_test_.loss;
  }
  const std::int64_t steps = trainer_->steps_done() - first_step_;
  summary_.steps = trainer_->steps_done();
  summary_.samples = samples_;
  summary_.train_s = train_s_;
  summary_.step_s = median(step_s_);
  summary_.compute_s = median(compute_s_);
  summary_.exposed_s = median(exposed_s_);
  if (steps > 0)
    summary_.wire_bytes_per_step =
        static_cast<double>(trainer_->team().sent_bytes() - sent_before_) /
        static_cast<double>(steps);
  if (train_s_ > 0) summary_.samples_per_s = static_cast<double>(samples_) / train_s_;
  summary_.peak_memory_bytes = peak_memory();
}

void Job::write_trace_file() {
  if (!folder_ || config_.trace_steps == 0) return;
  Trace trace = trainer_->trace();
  std::int64_t last = 0;
  for (const auto& event : trace) last = std::max(last, event.step);
  std::erase_if(trace, [&](const Event& e) { return e.step <= last - config_.trace_steps; });
  if (!trace.empty()) folder_->append_trace(rank_, trace);
}

void Job::finish() {
  summarise();
  write_trace_file();
  if (!leads()) return;
  progress_->finish();
  RunInfo end = info(signal_ ? "interrupted" : "finished");
  end.summary = summary_;
  folder_->write_info(end);
}

TrainOutcome Job::run() {
  load();
  make_folder();
  greet();
  resume();
  try {
    loop();
    if (trainer_->steps_done() == first_step_) {
      evaluate_now();
      save();
    }
    finish();
  } catch (const std::exception& error) {
    if (log_.is_open()) log_ << "failed: " << error.what() << std::endl;
    if (leads() && folder_) folder_->write_info(info("failed"));
    throw;
  }
  TrainOutcome outcome;
  outcome.summary = summary_;
  if (leads() && config_.report) outcome.report = write_report(folder_->path());
  outcome.folder = folder_ ? folder_->path() : std::string();
  outcome.checkpoint = checkpoint_;
  outcome.stop_signal = signal_;
  return outcome;
}

}  // namespace

TrainOutcome run_training(const TrainJob& job, Comm* world) {
  Job run(job, world);
  TrainOutcome outcome = run.run();
  return outcome;
}

TrainConfig config_of_checkpoint(const std::string& path) {
  const CheckpointState state = read_checkpoint_state(find_checkpoint(path, "last"));
  TrainConfig config;
  for (const auto& [key, value] : state.config.items())
    set_option(config, key, value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

EvalOutcome run_evaluation(const std::string& path, const TrainConfig& config, Comm* world) {
  EvalOutcome outcome;
  outcome.checkpoint = find_checkpoint(path, "best");
  std::vector<std::string> notices;
  Dataset data = load_dataset(parse_spec(config.data), notices);
  shorten(data, config.samples, config.test_samples);
  if (data.test.count == 0)
    throw ConfigError(fmt::format("{}: it has no test samples", config.data));
  const auto model = make_model(parse_spec(config.model), form_of(data), 0);
  Trainer trainer(model, parse_spec("sgd"), cross_entropy(0), world, {});
  load_tensors(trainer.state(), read_tensors(outcome.checkpoint + "/model.safetensors"),
               outcome.checkpoint + "/model.safetensors");
  const Evaluation result = evaluate(trainer, data, config.eval_batch_size);
  outcome.step = read_checkpoint_state(outcome.checkpoint).step;
  outcome.model = config.model;
  outcome.data = config.data;
  outcome.samples = result.samples;
  outcome.accuracy = result.accuracy;
  outcome.loss = result.loss;
  return outcome;
}

void set_compute_threads(std::int64_t threads) { at::set_num_threads(static_cast<int>(threads)); }

Json torch_versions() {
  Json versions = Json::object();
  versions["torch"] = TORCH_VERSION;
  // Lines such as "  - Intel(R) MKL-DNN v3.7.1 (Git Hash ...)".
  for (const auto& line : split(at::show_config(), '\n')) {
    const auto begin = line.find_first_not_of(" -");
    if (begin == std::string::npos) continue;
    const std::string words = line.substr(begin);
    if (words.find("Math Kernel Library Version") != std::string::npos) versions["blas"] = words;
    if (words.find("MKL-DNN v") != std::string::npos) versions["mkldnn"] = words;
    if (words.starts_with("OpenMP")) versions["openmp"] = words;
  }
  return versions;
}

}  // namespace thinwire
