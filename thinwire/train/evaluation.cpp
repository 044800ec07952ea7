// SPDX-License-Identifier: Apache-2.0
// Evaluation, in a training and of a checkpoint, and what a resumed training should know. One
// source: the headers of torch cost more than all of it.
#include "thinwire/train/evaluation.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "thinwire/core/error.h"
#include "thinwire/train/checkpoint.h"
#include "thinwire/train/job.h"

namespace thinwire {
namespace {

bool is_file(const std::string& path) { return std::filesystem::is_regular_file(path); }

}  // namespace

InputForm form_of(const Dataset& data) {
  return {data.kind == SampleKind::text,
          data.channels,
          data.height,
          data.width,
          data.context,
          data.classes};
}

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

TrainConfig config_of_checkpoint(const std::string& path) {
  TrainConfig config;
  if (is_file(path)) return config;  // tensors alone: the caller says which model they are
  const CheckpointState state = read_checkpoint_state(find_checkpoint(path, "last"));
  for (const auto& [key, value] : state.config.items())
    set_option(config, key, value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

std::vector<std::string> resume_notes(const CheckpointState& state, const TrainConfig& config,
                                      int ranks) {
  std::vector<std::string> notes;
  if (state.ranks != ranks)
    notes.push_back(fmt::format(
        "{} rank{} before, {} now: batches, their order and the learning rates stay the same; "
        "gradients are summed from other parts, so the last bits differ, and batch norm sees "
        "other local batches",
        state.ranks, state.ranks == 1 ? "" : "s", ranks));
  const Json now = to_json(config);
  for (const auto& option : train_options())
    if (state.config.contains(option.key) && state.config[option.key] != now[option.key] &&
        option.group != "Output" && option.key != "ranks")
      notes.push_back(fmt::format("{} was {} and is {} now", option.key,
                                  state.config[option.key].dump(), now[option.key].dump()));
  return notes;
}

EvalOutcome run_evaluation(const std::string& path, const TrainConfig& config, Comm* world) {
  EvalOutcome outcome;
  std::string tensors = path;
  outcome.checkpoint = path;
  if (!is_file(path)) {
    outcome.checkpoint = find_checkpoint(path, "best");
    outcome.step = read_checkpoint_state(outcome.checkpoint).step;
    tensors = outcome.checkpoint + "/model.safetensors";
  }
  std::vector<std::string> notices;
  Dataset data = load_dataset(parse_spec(config.data), notices);
  shorten(data, config.samples, config.test_samples);
  if (data.test.count == 0)
    throw ConfigError(fmt::format("{}: it has no test samples", config.data));
  const auto model = make_model(parse_spec(config.model), form_of(data), 0);
  Trainer trainer(model, parse_spec("sgd"), cross_entropy(0), world, {});
  load_tensors(trainer.state(), read_tensors(tensors), tensors);
  const Evaluation result = evaluate(trainer, data, config.eval_batch_size);
  outcome.model = config.model;
  outcome.data = config.data;
  outcome.samples = result.samples;
  outcome.accuracy = result.accuracy;
  outcome.loss = result.loss;
  return outcome;
}

}  // namespace thinwire
