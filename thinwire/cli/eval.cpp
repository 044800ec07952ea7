// SPDX-License-Identifier: Apache-2.0
// thinwire eval: test accuracy of a checkpoint, every sample counted once.
#include <fmt/format.h>

#include <memory>

#include "thinwire/cli/ranks.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/train/job.h"
#include "thinwire/train/python_model.h"

namespace thinwire::cli {
namespace {

struct EvalOptions {
  std::string checkpoint;
  std::vector<std::string> words;
  RankOptions ranks;
  bool json = false;
};

int run_eval(const EvalOptions& options) {
  TrainConfig config = config_of_checkpoint(options.checkpoint);
  config.comm = "tcp";
  for (const auto& word : options.words) set_option(config, word);
  config.model = model_spec(config.model);
  config.ranks = 1;
  apply(options.ranks, config);
  validate(config);
  check_names(config);
  return on_ranks(config, options.ranks, [&](Comm* comm) {
    const EvalOutcome outcome = run_evaluation(options.checkpoint, config, comm);
    if (comm && comm->rank() != 0) return kOk;
    if (options.json)
      fmt::print("{}\n", Json{{"test_accuracy", outcome.accuracy},
                              {"test_loss", outcome.loss},
                              {"samples", outcome.samples},
                              {"step", outcome.step < 0 ? Json() : Json(outcome.step)},
                              {"model", outcome.model},
                              {"data", outcome.data},
                              {"checkpoint", outcome.checkpoint}}
                             .dump());
    else
      fmt::print("{}{} on {}: test accuracy {:.2f} %, test loss {:.4f}, {} samples\n",
                 outcome.model, outcome.step < 0 ? "" : fmt::format(" at step {}", outcome.step),
                 outcome.data, 100 * outcome.accuracy, outcome.loss, outcome.samples);
    return kOk;
  });
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* verb =
      add_verb(app, chosen, "eval", "Test accuracy of a checkpoint",
               "thinwire eval runs/2026-01-31-cnn", [options] { return run_eval(*options); });
  verb->add_option(
          "checkpoint", options->checkpoint,
          "A run folder (its best), a checkpoint folder, or a .safetensors file with model=")
      ->required();
  verb->add_option("config", options->words, "key=value, for example model=cnn or data=idx{...}");
  add_rank_options(*verb, options->ranks);
  verb->add_flag("--json", options->json, "One JSON object");
}

}  // namespace thinwire::cli
