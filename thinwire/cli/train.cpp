// SPDX-License-Identifier: Apache-2.0
// thinwire train: the main job.
#include <fmt/format.h>

#include <memory>

#include "thinwire/cli/ranks.h"
#include "thinwire/cli/tool.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/train/job.h"
#include "thinwire/train/python_model.h"
#include "thinwire/train/stop.h"

namespace thinwire::cli {
namespace {

struct TrainOptions {
  std::vector<std::string> words;  // a TOML file, key=value
  RankOptions ranks;
  std::string resume, model;
  bool dry_run = false, options = false, markdown = false, json = false, quiet = false;
};

TrainConfig configure(const TrainOptions& options) {
  TrainConfig config;
  if (!options.resume.empty()) config = config_of_checkpoint(options.resume);
  read_words(config, options.words);
  if (!options.model.empty()) config.model = options.model;
  config.model = model_spec(config.model);
  apply(options.ranks, config);
  validate(config);
  check_names(config);
  return config;
}

void print_end(const TrainOutcome& outcome, std::FILE* out) {
  if (outcome.stop_signal) {
    fmt::print(out, "stopped by signal {} after step {}; saved. Go on with: {} train --resume {}\n",
               outcome.stop_signal, *outcome.summary.steps, program_called(), outcome.folder);
    return;
  }
  if (outcome.summary.test_accuracy)
    fmt::print(out, "test accuracy {:.2f} %, test loss {:.4f}\n",
               100 * *outcome.summary.test_accuracy, *outcome.summary.test_loss);
  if (!outcome.report.empty()) fmt::print(out, "report: {}\n", outcome.report);
  fmt::print(out, "next: {} eval {}\n", program_called(), outcome.folder);
}

void print_json(const TrainOutcome& outcome) {
  Json json = Json::object();
  // These are always there, null where there is nothing to say.
  for (const char* key : {"test_accuracy", "test_loss", "steps", "samples", "step_s", "compute_s",
                          "exposed_s", "wire_bytes_per_step"})
    json[key] = nullptr;
  json.update(to_json(outcome.summary));
  json["report"] = outcome.report.empty() ? Json() : Json(outcome.report);
  json["run"] = outcome.folder;
  json["checkpoint"] = outcome.checkpoint;
  json["signal"] = outcome.stop_signal;
  fmt::print("{}\n", json.dump());
}

int run_train(const TrainOptions& options) {
  if (options.options) {
    fmt::print("{}", describe_options(options.markdown));
    return kOk;
  }
  TrainConfig config = configure(options);
  if (options.dry_run) {
    fmt::print("{}", to_toml(config));
    return kOk;
  }
  const auto command = own_command();
  std::FILE* out = options.quiet ? nullptr : options.json ? stderr : stdout;
  return on_ranks(config, options.ranks, [&](Comm* comm) {
    const bool leads = !comm || comm->rank() == 0;
    std::unique_ptr<StopSignals> signals;  // one a process
    if (leads || !config.comm.ends_with("local")) signals = std::make_unique<StopSignals>();
    const TrainOutcome outcome = run_training({.config = config,
                                               .resume = options.resume,
                                               .command = command,
                                               .out = leads ? out : nullptr,
                                               .stop_signal = StopSignals::received},
                                              comm);
    if (leads && out) print_end(outcome, out);
    if (leads && options.json) print_json(outcome);
    return outcome.stop_signal ? 128 + outcome.stop_signal : kOk;
  });
}

}  // namespace

void add_train(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = add_verb(app, chosen, "train", "Train a network on one or many ranks",
                            "thinwire train --ranks 2 model=cnn epochs=3",
                            [options] { return run_train(*options); });
  verb->add_option("config", options->words, "A TOML file, then key=value words (see --options)");
  add_rank_options(*verb, options->ranks);
  verb->add_option("--model", options->model,
                   "As model=, or FILE.py:CLASS from the Python front (python -m thinwire train)");
  verb->add_option("--resume", options->resume,
                   "Go on from a run's last checkpoint, or from a checkpoint");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print the effective configuration as TOML and end");
  verb->add_flag("--options", options->options, "Print the table of options and end");
  verb->add_flag("--markdown", options->markdown, "With --options: as Markdown");
  verb->add_flag("--json", options->json, "The last line of standard output is one JSON object");
  verb->add_flag("--quiet", options->quiet, "No progress");
}

}  // namespace thinwire::cli
