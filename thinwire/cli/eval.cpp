// SPDX-License-Identifier: Apache-2.0
// thinwire eval: test accuracy of a checkpoint, every sample counted once.
#include <fmt/format.h>

#include <memory>

#include "thinwire/cli/ranks.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/train/job.h"

namespace thinwire::cli {
namespace {

struct Options {
  std::string checkpoint;
  std::vector<std::string> words;
  RankOptions ranks;
  std::int64_t rank_count = 1;
  std::string comm;
  bool json = false;
};

int run(const Options& options) {
  TrainConfig config = config_of_checkpoint(options.checkpoint);
  config.comm = "tcp";
  for (const auto& word : options.words) set_option(config, word);
  config.ranks = options.rank_count;
  if (!options.comm.empty()) config.comm = options.comm;
  validate(config);
  return on_ranks(config, options.ranks, own_command(), [&](Comm* comm) {
    const EvalOutcome outcome = run_evaluation(options.checkpoint, config, comm);
    if (comm && comm->rank() != 0) return kOk;
    if (options.json)
      fmt::print("{}\n", Json{{"test_accuracy", outcome.accuracy},
                              {"test_loss", outcome.loss},
                              {"samples", outcome.samples},
                              {"step", outcome.step},
                              {"model", outcome.model},
                              {"data", outcome.data},
                              {"checkpoint", outcome.checkpoint}}
                             .dump());
    else
      fmt::print("{} at step {} on {}: test accuracy {:.2f} %, test loss {:.4f}, {} samples\n",
                 outcome.model, outcome.step, outcome.data, 100 * outcome.accuracy, outcome.loss,
                 outcome.samples);
    return kOk;
  });
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      add_verb(app, chosen, "eval", "Test accuracy of a checkpoint",
               "thinwire eval runs/2026-01-31-cnn", [options] { return run(*options); });
  verb->add_option("checkpoint", options->checkpoint,
                   "A run folder (its best) or a checkpoint folder")
      ->required();
  verb->add_option("config", options->words, "key=value, for example data=idx{...}");
  verb->add_option("--ranks", options->rank_count, "Ranks that share the test set");
  verb->add_option("--comm", options->comm, "Transport");
  verb->add_option("--join", options->ranks.join, "HOST:PORT where rank 0 listens");
  verb->add_option("--rank", options->ranks.rank, "This process' rank, with --join");
  verb->add_flag("--json", options->json, "One JSON object");
}

}  // namespace thinwire::cli
