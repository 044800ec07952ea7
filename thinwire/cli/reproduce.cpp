// SPDX-License-Identifier: Apache-2.0
// thinwire reproduce: carries out an experiment and says whether its claim came out.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <tuple>

#include "thinwire/cli/ranks.h"
#include "thinwire/cli/reproduce_curve.h"
#include "thinwire/cli/tool.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/core/spec.h"
#include "thinwire/report/curve.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/progress.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/train/data.h"
#include "thinwire/train/reproduce.h"
#include "thinwire/train/stop.h"

namespace thinwire::cli {
namespace {

struct ReproduceOptions {
  std::string name, out, runs = "runs";
  std::vector<std::string> arms;
  std::optional<std::int64_t> seeds;
  bool list = false, dry_run = false, quick = false, json = false, markdown = false, quiet = false;
};

void print_list(const ReproduceOptions& options) {
  const auto names = experiment_names();
  Json list = Json::array();
  std::size_t width = 0;
  for (const auto& name : names) width = std::max(width, name.size());
  if (options.markdown) fmt::print("| experiment | claim |\n|---|---|\n");
  const auto show = [&](const auto& experiment, const char* kind) {
    Json arms = Json::array();
    for (const Arm& arm : experiment.arms) arms.push_back(arm.name);
    list.push_back({{"name", experiment.name},
                    {"kind", kind},
                    {"title", experiment.title},
                    {"claim", experiment.claim},
                    {"arms", arms}});
    const bool simulated = list.back()["kind"] == "simulated";
    if (options.markdown)
      fmt::print("| `{}` | {}{} |\n", experiment.name, experiment.claim,
                 simulated ? " (In virtual time.)" : "");
    else if (!options.json)
      fmt::print("{:<{}}  {}{}\n", experiment.name, width, simulated ? "virtual time: " : "",
                 experiment.title);
  };
  for (const auto& name : names) {
    const ExperimentText file = experiment_text(name);
    if (experiment_kind(file.text, file.source) == "simulated")
      show(parse_curve(file.text, file.source), "simulated");
    else
      show(parse_experiment(file.text, file.source), "trained");
  }
  if (options.json) fmt::print("{}\n", dump(list, "reproduce"));
}

void print_arms(const Experiment& experiment, const ReproduceOptions& options) {
  const bool fewer = options.quick && experiment.quick_seeds > 0;
  const std::int64_t seeds =
      options.seeds.value_or(fewer ? experiment.quick_seeds : experiment.seeds);
  fmt::print("{}\n", experiment.title);
  for (const Arm& arm : experiment.arms) {
    const TrainConfig config = config_of(experiment, arm, 1, options.quick);
    fmt::print("  {}: seeds 1 to {}, {} steps on {} ranks, form {}\n", arm.name, seeds,
               config.steps, config.ranks, config.form);
  }
}

/// Names that only this build knows, before the first run.
void check_arms(const Experiment& experiment, bool quick) {
  for (const Arm& arm : experiment.arms) {
    try {
      check_names(config_of(experiment, arm, 1, quick));
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.starts_with(experiment.source)) throw;
      throw ConfigError(
          fmt::format("{}, line {}: arm {}: {}", experiment.source, arm.line, arm.name, text));
    }
  }
}

/// Shows where the whole experiment stands, as steps of all its runs.
class Shown {
 public:
  explicit Shown(std::FILE* out) : progress_({.out = out, .sample = "samples"}) {}
  void begin(const TrainConfig& config, int done, int all) {
    steps_ = config.steps;
    done_ = done;
    all_ = all;
    step_ = 0;
    progress_.line(
        fmt::format("run {} of {}: {}, form {}", done + 1, all, config.name, config.form));
  }
  /// Called by one rank, once a step.
  void step() {
    ++step_;
    progress_.update({.step = done_ * steps_ + std::min(step_, steps_), .steps = all_ * steps_});
  }
  void line(const std::string& text) { progress_.line(text); }
  void finish() { progress_.finish(); }

 private:
  Progress progress_;
  std::int64_t steps_ = 1, step_ = 0;
  int done_ = 0, all_ = 1;
};

/// The data of the run before, kept: reading it again for every rank of every run would take longer
/// than short runs do.
class Data {
 public:
  std::shared_ptr<const Dataset> of(const TrainConfig& config, Shown& shown) {
    const auto key = std::tuple(config.data, config.samples, config.test_samples);
    if (!data_ || key != key_) {
      std::vector<std::string> notices;
      Dataset loaded = load_dataset(parse_spec(config.data), notices);
      shorten(loaded, config.samples, config.test_samples);
      for (const std::string& text : notices) shown.line("note: " + text);
      data_ = std::make_shared<const Dataset>(std::move(loaded));
      key_ = key;
    }
    return data_;
  }

 private:
  std::tuple<std::string, std::int64_t, std::int64_t> key_;
  std::shared_ptr<const Dataset> data_;
};

TrainOutcome train_arm(TrainConfig config, const std::shared_ptr<const Dataset>& data,
                       Shown& shown) {
  TrainOutcome outcome;
  on_ranks(config, {}, [&](Comm* comm) {
    const bool leads = !comm || comm->rank() == 0;
    TrainOutcome mine = run_training({.config = config,
                                      .resume = "",
                                      .command = own_command(),
                                      .out = nullptr,
                                      .stop_signal =
                                          [&shown, leads] {
                                            if (leads) shown.step();
                                            return StopSignals::received();
                                          },
                                      .data = data},
                                     comm);
    if (leads) outcome = std::move(mine);
    return kOk;
  });
  return outcome;
}

std::string folder_for(const ReproduceOptions& options, const Experiment& experiment) {
  if (!options.out.empty()) return options.out;
  return RunFolder::create(options.runs,
                           "reproduce-" + experiment.name + (options.quick ? "-quick" : ""))
      .path();
}

int run_reproduce(const ReproduceOptions& options) {
  if (options.list) {
    print_list(options);
    return kOk;
  }
  if (options.name.empty())
    throw ConfigError("reproduce: the name of an experiment is needed; --list shows them");
  if (options.seeds && (*options.seeds < 1 || *options.seeds > 1000))
    throw ConfigError(fmt::format("--seeds: must be in [1, 1000], got {}", *options.seeds));
  const ExperimentText file = experiment_text(options.name);
  if (experiment_kind(file.text, file.source) == "simulated") {
    if (options.seeds)
      throw ConfigError("--seeds: a simulated experiment has none, it is the same each time");
    return run_curves(parse_curve(file.text, file.source), {.arms = options.arms,
                                                            .out = options.out,
                                                            .runs = options.runs,
                                                            .quick = options.quick,
                                                            .dry_run = options.dry_run,
                                                            .json = options.json,
                                                            .markdown = options.markdown,
                                                            .quiet = options.quiet});
  }
  const Experiment experiment = parse_experiment(file.text, file.source);
  check_arms(experiment, options.quick);
  for (const auto& name : options.arms) experiment.arm(name);
  if (options.dry_run) {
    print_arms(experiment, options);
    return kOk;
  }
  const std::string out = folder_for(options, experiment);
  const bool prints = options.json || options.markdown;
  std::FILE* people = options.quiet ? nullptr : prints ? stderr : stdout;
  const StopSignals signals;
  Shown shown(people);
  Data data;
  Reproduced result = reproduce(
      experiment,
      {.quick = options.quick,
       .seeds = options.seeds.value_or(0),
       .arms = options.arms,
       .out = out,
       .train =
           [&](const TrainConfig& config) {
             return train_arm(config, data.of(config, shown), shown);
           },
       .begin = [&](const TrainConfig& c, int done, int all) { shown.begin(c, done, all); },
       .say = [&](const std::string& text) { shown.line(text); }});
  shown.finish();
  write_outcome(experiment, result.measured, out);
  if (options.json) {
    Json json = json_outcome(experiment, result.measured);
    json["out"] = out;
    json["signal"] = result.stop_signal;
    fmt::print("{}\n", dump(json, "reproduce"));
  } else if (options.markdown) {
    fmt::print("{}", markdown_outcome(experiment, result.measured));
  } else if (people) {
    fmt::print(people, "\n{}", text_outcome(experiment, result.measured));
  }
  if (people)
    fmt::print(people, "{}report: {}/report.html\n",
               result.stop_signal ? "stopped; the same command with --out goes on there\n" : "",
               out);
  return result.stop_signal ? 128 + result.stop_signal : kOk;
}

}  // namespace

void add_reproduce(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ReproduceOptions>();
  CLI::App* verb = add_verb(app, chosen, "reproduce",
                            "Test what a paper claims at desk size: arms, seeds, verdict",
                            "thinwire reproduce error-feedback-dgc --quick",
                            [options] { return run_reproduce(*options); });
  verb->add_option("experiment", options->name, "A name of --list, or a TOML file of your own");
  verb->add_flag("--list", options->list, "Show the experiments and end");
  verb->add_flag("--dry-run", options->dry_run, "Check the experiment, show its arms and end");
  verb->add_flag("--quick", options->quick, "Fewer steps, samples or seeds: about a minute");
  verb->add_option("--seeds", options->seeds,
                   "Runs of every arm (default: as the experiment says)");
  verb->add_option("--arm", options->arms, "Only this arm; may be repeated");
  verb->add_option("--out", options->out,
                   "Folder for the results; one that holds some already is gone on with (default: "
                   "a new one under runs/)");
  verb->add_flag("--json", options->json, "One JSON object on standard output");
  verb->add_flag("--markdown", options->markdown,
                 "A section for docs/experiments.md instead; with --list a table");
  verb->add_flag("--quiet", options->quiet, "No progress");
}

}  // namespace thinwire::cli
