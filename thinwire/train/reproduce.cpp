// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/text.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/html.h"
#include "thinwire/train/experiments.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

using Status = ArmRun::Status;

/// Options that the runner sets, with what an experiment may not say of them.
constexpr const char* kOwn[] = {"seed", "runs", "name", "report", "epochs"};

void apply_setting(const Experiment& experiment, TrainConfig& config, const Setting& setting) {
  try {
    if (std::find(std::begin(kOwn), std::end(kOwn), setting.key) != std::end(kOwn))
      throw ConfigError(
          fmt::format("{}: is set by thinwire reproduce, which counts steps", setting.key));
    set_option(config, setting.key, setting.value);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("{}, line {}: {}", experiment.source, setting.line, error.what()));
  }
}

/// What must be equal for two runs of one arm and seed to be the same run.
Json essence(Json configuration) {
  for (const char* key : {"runs", "name", "report", "timeout_s", "pin", "threads", "trace_steps"})
    configuration.erase(key);
  return configuration;
}

class Runner {
 public:
  Runner(const Experiment& experiment, const ReproduceJob& job)
      : experiment_(experiment), job_(job) {}
  Reproduced run();

 private:
  struct Planned {
    const Arm* arm = nullptr;
    TrainConfig config;
  };
  void plan();
  void read_earlier();
  bool known(const Planned& planned) const;
  void carry_out(const Planned& planned);
  ArmRun train(const Planned& planned);
  void keep(ArmRun run);
  void say(const std::string& text) const {
    if (job_.say) job_.say(text);
  }
  std::string file() const { return (fs::path(job_.out) / "measured.json").string(); }

  const Experiment& experiment_;
  const ReproduceJob& job_;
  std::vector<Planned> planned_;
  Reproduced out_;
};

void Runner::plan() {
  std::int64_t seeds = job_.seeds;
  if (seeds == 0) seeds = experiment_.seeds;
  if (job_.seeds == 0 && job_.quick && experiment_.quick_seeds > 0) seeds = experiment_.quick_seeds;
  std::vector<const Arm*> arms;
  for (const std::string& name : job_.arms) arms.push_back(&experiment_.arm(name));
  if (arms.empty())
    for (const Arm& arm : experiment_.arms) arms.push_back(&arm);
  // Seed by seed, so that what an interruption leaves are whole comparisons.
  for (std::int64_t seed = 1; seed <= seeds; ++seed)
    for (const Arm* arm : arms) {
      Planned planned{arm, config_of(experiment_, *arm, seed, job_.quick)};
      planned.config.runs = (fs::path(job_.out) / "runs").string();
      planned.config.name = fmt::format("{}-seed{}", arm->name, seed);
      planned_.push_back(std::move(planned));
    }
}

void Runner::read_earlier() {
  out_.measured.quick = job_.quick;
  if (!fs::exists(file())) return;
  out_.measured = measured_from_json(read_json(file()), file());
  if (out_.measured.quick != job_.quick)
    throw ConfigError(fmt::format("{}: holds the {} form; take another --out", file(),
                                  out_.measured.quick ? "quick" : "full"));
  for (const Planned& planned : planned_) {
    const ArmRun* run = out_.measured.find(planned.arm->name, planned.config.seed);
    if (run && essence(run->configuration) != essence(to_json(planned.config)))
      throw ConfigError(fmt::format("{}: holds {} with other settings; take another --out", file(),
                                    planned.config.name));
  }
}

bool Runner::known(const Planned& planned) const {
  const ArmRun* run = out_.measured.find(planned.arm->name, planned.config.seed);
  return run && run->status != Status::failed;
}

ArmRun Runner::train(const Planned& planned) {
  ArmRun run{.arm = planned.arm->name, .seed = planned.config.seed, .why = "", .data = ""};
  run.configuration = to_json(planned.config);
  try {
    const TrainOutcome outcome = job_.train(planned.config);
    out_.stop_signal = outcome.stop_signal;
    const RunSummary& summary = outcome.summary;
    if (!summary.test_accuracy || !summary.test_loss)
      throw Error("there is no test result; the data has no test samples");
    run.test_accuracy = *summary.test_accuracy;
    run.test_loss = *summary.test_loss;
    // An update that stands for several steps is shared out over them.
    run.bytes_per_step =
        summary.wire_bytes_per_step.value_or(0) / static_cast<double>(planned.arm->accumulate);
    run.step_s = summary.step_s.value_or(0);
    run.exposed_s = summary.exposed_s.value_or(0);
    run.train_s = summary.train_s.value_or(0);
    run.steps = summary.steps.value_or(0);
    run.samples = summary.samples.value_or(0);
    run.data = outcome.data;
    if (!std::isfinite(run.test_loss)) throw DivergedError("the test loss is no number");
  } catch (const DivergedError& error) {
    run.status = Status::diverged;
    run.why = error.what();
    run.test_accuracy = run.test_loss = 0;
  } catch (const std::exception& error) {
    run.status = Status::failed;
    run.why = error.what();
  }
  return run;
}

void Runner::keep(ArmRun run) {
  auto& runs = out_.measured.runs;
  std::erase_if(runs,
                [&](const ArmRun& one) { return one.arm == run.arm && one.seed == run.seed; });
  runs.push_back(std::move(run));
  std::stable_sort(runs.begin(), runs.end(),
                   [](const ArmRun& a, const ArmRun& b) { return a.seed < b.seed; });
  write_text(file(), to_json(out_.measured).dump(1, ' ', false, Json::error_handler_t::replace));
}

void Runner::carry_out(const Planned& planned) {
  ArmRun run = train(planned);
  // Interrupted after its last step too: what stands there is then no test of a whole run.
  if (out_.stop_signal) return;
  std::string text = fmt::format("{}, seed {}: ", run.arm, run.seed);
  if (run.status == Status::finished)
    text += fmt::format("test accuracy {:.2f} %, test loss {:.4f}, {} a step, {}",
                        100 * run.test_accuracy, run.test_loss,
                        format_bytes(static_cast<std::int64_t>(run.bytes_per_step)),
                        format_seconds(run.train_s));
  else
    text += fmt::format("{}: {}", word(run.status), run.why);
  say(text);
  keep(std::move(run));
}

Reproduced Runner::run() {
  plan();
  read_earlier();
  out_.measured.command = command_of(experiment_, job_);
  std::error_code error;
  fs::create_directories(job_.out, error);
  if (!fs::is_directory(job_.out))
    throw ConfigError(fmt::format("{}: cannot be made: {}", job_.out, error.message()));
  const int all = static_cast<int>(planned_.size());
  int done = 0;
  for (const Planned& planned : planned_) {
    if (!known(planned)) {
      if (job_.begin) job_.begin(planned.config, done, all);
      carry_out(planned);
      if (out_.stop_signal) break;
    }
    ++done;
  }
  return std::move(out_);
}

}  // namespace

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const auto& one : built_in_experiments()) names.emplace_back(one.name);
  std::sort(names.begin(), names.end());
  return names;
}

ExperimentText experiment_text(const std::string& name) {
  if (name.ends_with(".toml") || name.find('/') != std::string::npos)
    return {read_text(name), name};
  for (const auto& one : built_in_experiments())
    if (one.name == name) return {std::string(one.text), "experiments/" + name + ".toml"};
  const auto names = experiment_names();
  throw ConfigError(unknown_name("experiment", name, names));
}

Experiment find_experiment(const std::string& name) {
  const ExperimentText file = experiment_text(name);
  return parse_experiment(file.text, file.source);
}

TrainConfig config_of(const Experiment& experiment, const Arm& arm, std::int64_t seed, bool quick) {
  TrainConfig config;
  config.comm = "local";
  config.report = false;
  config.trace_steps = 0;
  config.eval_every = 0;
  config.checkpoint_every = 0;
  for (const Setting& setting : experiment.base) apply_setting(experiment, config, setting);
  if (quick)
    for (const Setting& setting : experiment.quick) apply_setting(experiment, config, setting);
  for (const Setting& setting : arm.settings) apply_setting(experiment, config, setting);
  config.seed = seed;
  const auto refuse = [&](const std::string& rule) {
    throw ConfigError(
        fmt::format("{}, line {}: arm {}: {}", experiment.source, arm.line, arm.name, rule));
  };
  if (config.steps == 0) refuse("steps must be set, in [base] say");
  if (config.steps < arm.accumulate)
    refuse(
        fmt::format("accumulate must be at most steps = {}, got {}", config.steps, arm.accumulate));
  config.batch_size *= arm.accumulate;
  config.steps /= arm.accumulate;
  try {
    validate(config);
    if (parse_chain(config.comm).back().name != "local")
      throw ConfigError(
          fmt::format("comm: must end in local, where ranks are threads, got '{}'", config.comm));
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  return config;
}

std::string command_of(const Experiment& experiment, const ReproduceJob& job) {
  std::string out = "thinwire reproduce " + experiment.name;
  if (job.quick) out += " --quick";
  if (job.seeds > 0) out += fmt::format(" --seeds {}", job.seeds);
  return out;
}

Reproduced reproduce(const Experiment& experiment, const ReproduceJob& job) {
  return Runner(experiment, job).run();
}

void write_outcome(const Experiment& experiment, const Measured& measured, const std::string& out) {
  const auto at = [&](const char* name) { return (fs::path(out) / name).string(); };
  write_text(at("report.html"), html_outcome(experiment, measured));
  write_text(at("report.md"), markdown_outcome(experiment, measured));
  write_text(at("result.json"), dump(json_outcome(experiment, measured), "result") + '\n');
  std::vector<RunData> runs;
  for (const Arm& arm : experiment.arms)
    for (const ArmRun& run : measured.runs) {
      const std::string folder = fmt::format("{}/runs/{}-seed{}", out, run.arm, run.seed);
      if (run.arm == arm.name && run.seed == 1 && fs::exists(folder + "/run.json"))
        runs.push_back(read_run(folder));
    }
  if (!runs.empty()) write_text(at("curves.html"), html_report(runs));
}

}  // namespace thinwire
