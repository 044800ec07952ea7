// SPDX-License-Identifier: Apache-2.0
// One training on one rank: what happens when. What it leaves behind is RunRecord's matter.
#include "thinwire/train/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "thinwire/codec/codec.h"
#include "thinwire/codec/memory.h"
#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/plan.h"
#include "thinwire/report/html.h"
#include "thinwire/train/auto_plan.h"
#include "thinwire/train/checkpoint.h"
#include "thinwire/train/evaluation.h"
#include "thinwire/train/live_plan.h"
#include "thinwire/train/run_record.h"
#include "thinwire/train/schedule.h"
#include "thinwire/train/torch_build.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

class Job {
 public:
  Job(const TrainJob& job, Comm* world) : job_(job), config_(job.config), world_(world) {}
  TrainOutcome run();

 private:
  void load();
  std::string plan_text(std::optional<AutoPlan>& planned);
  std::string plan_of_resumed();
  void greet();
  const AutoPlan* planned() const { return live_ ? &*live_->planned() : nullptr; }
  void say_choice();
  void write_choice() const;
  void say_how_it_came_out();
  RunSummary summary() const;
  void resume();
  void loop();
  void choose_again(std::int64_t step);
  void after_step(std::int64_t done);
  void evaluate_now();
  void save();
  void finish();
  bool leads() const { return trainer_->team().rank() == 0; }
  double epochs_done(std::int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(steps_per_epoch_);
  }
  /// Whether an event that comes every `every` epochs lies in (step - 1, step].
  bool due(double every, std::int64_t step) const {
    return every > 0 &&
           std::floor(epochs_done(step) / every) > std::floor(epochs_done(step - 1) / every);
  }
  RunInfo info(const std::string& status) const;
  std::string data_text() const;

  TrainJob job_;
  TrainConfig config_;
  Comm* world_;
  Dataset data_;
  std::vector<std::string> notices_;
  std::string plan_;  ///< as JSON; empty: made from grouping and form
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<LivePlan> live_;  ///< of plan=auto
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<RunRecord> record_;
  RateSchedule schedule_;
  std::int64_t steps_per_epoch_ = 1, steps_ = 0, first_step_ = 0;
  std::optional<TestResult> test_;
  double best_accuracy_ = -1;
  std::int64_t best_step_ = -1, saved_step_ = -1;
  std::string checkpoint_;
  int signal_ = 0;
};

void Job::load() {
  data_ = job_.data ? *job_.data : load_dataset(parse_spec(config_.data), notices_);
  shorten(data_, config_.samples, config_.test_samples);
  const auto model = make_model(parse_spec(config_.model), form_of(data_),
                                static_cast<std::uint64_t>(config_.seed));
  std::optional<AutoPlan> planned;
  trainer_ = std::make_unique<Trainer>(
      model, parse_spec(config_.optimizer), cross_entropy(config_.label_smoothing), world_,
      TrainerOptions{.clip_norm = config_.clip_norm,
                     .order = config_.order,
                     .grouping = config_.grouping,
                     .form = config_.form,
                     .algorithm = config_.algorithm,
                     .plan = plan_ = plan_text(planned),
                     .seed = static_cast<std::uint64_t>(config_.seed)});
  if (planned)
    live_ = std::make_unique<LivePlan>(
        *trainer_->sync(), *world_,
        LivePlanOptions{.forms = forms_to_consider(config_),
                        .replan = config_.replan,
                        .say = [this](const std::string& text) { record_->say(text); }},
        std::move(*planned));
  const Team& team = trainer_->team();
  loader_ = std::make_unique<Loader>(
      data_, data_.train,
      LoaderOptions{.batch_size = config_.batch_size,
                    .rank = team.rank(),
                    .ranks = team.size(),
                    .seed = static_cast<std::uint64_t>(config_.seed),
                    .crop_flip = config_.augment == "crop_flip" && data_.kind == SampleKind::image,
                    .threads = static_cast<int>(config_.loader_threads)});
  steps_per_epoch_ = loader_->batches_per_epoch();
  steps_ = config_.steps > 0 ? config_.steps : config_.epochs * steps_per_epoch_;
  schedule_ = make_schedule(parse_spec(config_.schedule), {steps_, steps_per_epoch_});
}

/// The plan's JSON; empty: one is made from grouping and form. `planned`: what it was chosen from.
std::string Job::plan_text(std::optional<AutoPlan>& planned) {
  if (!chooses_plan(config_)) return config_.plan.empty() ? "" : read_text(config_.plan);
  if (!world_ || world_->size() == 1) {
    notices_.emplace_back("one rank sends nothing: plan=auto has nothing to choose");
    return {};
  }
  // What memories hold back fits the plan that it came from.
  if (const std::string old = plan_of_resumed(); !old.empty()) {
    notices_.emplace_back("the plan of the run that is resumed goes on; nothing is measured");
    return old;
  }
  planned = choose_plan(config_, data_, *world_);
  return to_json(planned->choice.plan);
}

/// The plan.json of the run that is resumed, where rank 0 finds one for as many ranks; else empty.
std::string Job::plan_of_resumed() {
  Team team(world_);
  std::string text;
  if (team.rank() == 0 && !job_.resume.empty()) {
    const fs::path run = fs::path(find_checkpoint(job_.resume, "last")).parent_path().parent_path();
    if (fs::exists(run / "plan.json")) text = read_text((run / "plan.json").string());
  }
  text = team.from_first("plan of the run resumed", text);
  if (text.empty()) return text;
  const Plan plan = plan_from_json(text, "plan.json of the run resumed");
  const bool fits =
      !plan.groups.empty() && static_cast<int>(plan.groups[0].ranks.size()) == team.size();
  return fits ? text : "";
}

std::string Job::data_text() const {
  return fmt::format("{}: {} training and {} test samples ({})", data_.name, data_.train.count,
                     data_.test.count, data_.source);
}

RunInfo Job::info(const std::string& status) const {
  RunInfo info;
  info.status = status;
  info.command = job_.command;
  info.setup.model = config_.model;
  info.setup.data = config_.data;
  info.setup.parameters = parameter_count(*trainer_->model());
  info.setup.ranks = trainer_->team().size();
  info.setup.transport = world_ ? config_.comm : "none";
  info.setup.congestion_control = world_ ? congestion_control(*world_) : "";
  const AutoPlan* plan = planned();
  info.setup.grouping = plan                   ? plan->choice.chosen.grouping
                        : config_.plan.empty() ? config_.grouping
                                               : config_.plan;
  info.setup.form = plan ? plan->choice.chosen.form : config_.form;
  info.setup.batch_size = config_.batch_size;
  info.configuration = to_json(config_);
  info.versions = build_versions();
  info.versions.update(torch_versions());
  return info;
}

void Job::greet() {
  const int ranks = trainer_->team().size();
  const auto say = [&](const std::string& text) { record_->say(text); };
  for (const auto& text : notices_) say("note: " + text);
  say(fmt::format("model {}: {} parameters; data {}", config_.model,
                  parameter_count(*trainer_->model()), data_text()));
  std::string shares;
  for (Rank r = 0; r < ranks; ++r)
    shares += fmt::format("{}{}", r ? "+" : "", share_of(config_.batch_size, r, ranks).count);
  if (ranks > 8) shares = fmt::format("about {} a rank", config_.batch_size / ranks);
  say(fmt::format(
      "{} rank{} over {}; batch {}{}; {} steps, {} an epoch; {} compute thread{} a rank", ranks,
      ranks == 1 ? "" : "s", world_ ? config_.comm : "none", config_.batch_size,
      ranks > 1 ? " = " + shares : "", steps_, steps_per_epoch_, compute_threads(),
      compute_threads() == 1 ? "" : "s"));
  if (config_.batch_size < ranks)
    say(fmt::format("note: a batch of {} leaves {} of {} ranks without work", config_.batch_size,
                    ranks - config_.batch_size, ranks));
  if (const std::string how = trainer_->describe(); !how.empty()) say(how);
  if (record_->folder()) say("run folder " + record_->folder()->path());
  if (planned() && leads()) {
    say_choice();
    write_choice();
  } else if (chooses_plan(config_) && leads() && record_->folder() && !plan_.empty()) {
    write_text(record_->folder()->file("plan.json"), plan_);
  }
}

void Job::say_choice() {
  const auto& [measured, choice] = *planned();
  const Link& link = measured.cluster.links.at("all_reduce")[0];
  record_->say(fmt::format(
      "measured: an all_reduce takes {} and {} (the fit is {:.0f} % off), computation {}{}",
      format_seconds(link.latency_s), format_rate(link.bytes_per_s),
      100 * measured.residual.at("all_reduce"), format_seconds(choice.compute_s),
      measured.cluster.shared_core ? "; communication shares its core" : ""));
  std::string text = explain(choice);
  text.pop_back();  // the line's own end
  record_->say(text);
}

void Job::write_choice() const {
  const auto& [measured, choice] = *planned();
  const RunFolder& folder = *record_->folder();
  write_text(folder.file("plan.json"), to_json(choice.plan));
  write_text(folder.file("profile.json"), to_json(measured.profile));
  write_text(folder.file("cluster.json"), to_json(measured.cluster));
  write_text(folder.file("choice.json"), to_json(choice).dump(2) + '\n');
}

RunSummary Job::summary() const {
  RunSummary out = record_->summary(trainer_->steps_done(), test_);
  if (planned() && leads()) {
    const Considered& chosen = planned()->choice.chosen;
    out.predicted_step_s = chosen.step_s;
    out.predicted_exposed_s = chosen.exposed_s;
    out.predicted_bytes_per_step = static_cast<double>(chosen.bytes_per_step);
  }
  return out;
}

void Job::say_how_it_came_out() {
  const RunSummary all = summary();
  if (!all.predicted_step_s || !all.step_s || *all.steps == first_step_) return;
  record_->say(fmt::format(
      "predicted and measured: step {} and {} ({:+.1f} %), exposed {} and {}, sent {} and {}",
      format_seconds(*all.predicted_step_s), format_seconds(*all.step_s),
      100 * (*all.step_s / *all.predicted_step_s - 1), format_seconds(*all.predicted_exposed_s),
      format_seconds(*all.exposed_s),
      format_bytes(static_cast<Bytes>(*all.predicted_bytes_per_step)),
      format_bytes(static_cast<Bytes>(all.wire_bytes_per_step.value_or(0)))));
}

void Job::resume() {
  CheckpointState state;
  if (!job_.resume.empty()) {
    const std::string path = find_checkpoint(job_.resume, "last");
    state = read_checkpoint_state(path);
    load_tensors(trainer_->state(), read_tensors(path + "/model.safetensors"),
                 path + "/model.safetensors");
    trainer_->optimizer().load_state(read_tensors(path + "/optimizer.safetensors"));
    trainer_->load_form_state(read_form_state(path));
    trainer_->set_steps_done(state.step);
    first_step_ = state.step;
    best_accuracy_ = state.best_accuracy;
    record_->say(fmt::format("resumed from {} at step {}", path, state.step));
    for (const auto& text : resume_notes(state, config_, trainer_->team().size()))
      record_->say("note: " + text);
    record_->copy_rows(fs::path(path).parent_path().parent_path() / "metrics.jsonl", state.step);
  }
  record_->begin({first_step_, steps_, steps_per_epoch_}, state.samples, state.train_s);
}

void Job::loop() {
  for (std::int64_t step = first_step_; step < steps_ && signal_ == 0; ++step) {
    if (live_) choose_again(step);
    const auto begin = Clock::now();
    const Batch& batch = loader_->at(step);
    const Seconds load_s = std::chrono::duration<double>(Clock::now() - begin).count();
    const double learning_rate = config_.learning_rate * schedule_(step);
    const StepReport report =
        trainer_->step(tensors_of(data_, batch, trainer_->team().size()), learning_rate,
                       job_.stop_signal ? job_.stop_signal() : 0);
    if (!std::isfinite(report.loss))
      throw DivergedError(
          fmt::format("the loss is no number at step {}: training has diverged; try a lower "
                      "learning_rate, or clip_norm",
                      step));
    signal_ = report.stop_signal;
    record_->step({.step = step + 1,
                   .loss = report.loss,
                   .accuracy = report.accuracy,
                   .learning_rate = learning_rate,
                   .step_s = report.step_s + load_s,
                   .exposed_s = report.exposed_s,
                   .samples = batch.total});
    after_step(step + 1);
  }
}

void Job::choose_again(std::int64_t step) {
  const Bytes before = trainer_->team().sent_bytes();
  if (live_->between_steps()) {
    record_->plan_changed(step);
    if (leads()) write_choice();
  } else {
    record_->leave_out(trainer_->team().sent_bytes() - before);
  }
}

void Job::after_step(std::int64_t done) {
  const bool end = done == steps_ || signal_ != 0;
  if (due(config_.eval_every, done) || (end && signal_ == 0))
    evaluate_now();
  else if (done % config_.log_every == 0 || end)
    record_->row(done, {});
  if (due(config_.checkpoint_every, done) || end) save();
}

void Job::evaluate_now() {
  const std::int64_t done = trainer_->steps_done();
  if (data_.test.count == 0) return record_->row(done, {});
  const Evaluation result = evaluate(*trainer_, data_, config_.eval_batch_size);
  test_ = {result.loss, result.accuracy};
  const double loss = record_->mean_loss();
  record_->row(done, test_);
  best_step_ = result.accuracy > best_accuracy_ ? done : best_step_;
  best_accuracy_ = std::max(best_accuracy_, result.accuracy);
  std::string trained;
  if (done > first_step_) trained = fmt::format("training loss {:.4f}, ", loss);
  record_->say(fmt::format(
      "epoch {:.4g}: {}test accuracy {:.2f} %, test loss {:.4f}, {} of training", epochs_done(done),
      trained, 100 * result.accuracy, result.loss, format_seconds(record_->train_s())));
}

void Job::save() {
  const std::int64_t done = trainer_->steps_done();
  if (saved_step_ == done) return;
  saved_step_ = done;
  const NamedTensors form = trainer_->form_state();
  if (!leads()) return;
  const CheckpointState state{.step = done,
                              .samples = record_->samples(),
                              .ranks = trainer_->team().size(),
                              .train_s = record_->train_s(),
                              .best_accuracy = best_accuracy_,
                              .best_step = best_step_,
                              .config = to_json(config_)};
  checkpoint_ = save_checkpoint(record_->folder()->checkpoint_folder(), state, trainer_->state(),
                                trainer_->optimizer().state(), form, config_.keep,
                                best_step_ == done || !test_);
}

void Job::finish() {
  record_->trace(trainer_->trace(), config_.trace_steps);
  RunInfo end = info(signal_ ? "interrupted" : "finished");
  end.summary = summary();
  say_how_it_came_out();
  record_->close(std::move(end));
}

TrainOutcome Job::run() {
  load();
  record_ = std::make_unique<RunRecord>(trainer_->team(), job_.out,
                                        data_.kind == SampleKind::text ? "texts" : "images");
  record_->open(config_, info("running"));
  greet();
  try {
    resume();
    loop();
    if (trainer_->steps_done() == first_step_) {
      evaluate_now();
      save();
    }
    finish();
  } catch (const std::exception& error) {
    record_->failed(info("failed"), error.what());
    throw;
  }
  TrainOutcome outcome;
  outcome.summary = summary();
  if (leads() && config_.report) outcome.report = write_report(record_->folder()->path());
  outcome.folder = record_->folder() ? record_->folder()->path() : std::string();
  outcome.checkpoint = checkpoint_;
  outcome.data = data_text();
  outcome.stop_signal = signal_;
  return outcome;
}

}  // namespace

void check_names(const TrainConfig& config) {
  models().find(parse_spec(config.model).name);
  optimizers().find(parse_spec(config.optimizer).name);
  check_form(config.form);
  if (chooses_plan(config)) {
    for (const std::string& form : forms_to_consider(config)) check_form(form);
  } else if (!config.plan.empty())
    plan_from_json(read_text(config.plan), config.plan);
}

TrainOutcome run_training(const TrainJob& job, Comm* world) { return Job(job, world).run(); }

}  // namespace thinwire
