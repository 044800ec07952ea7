// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/strategy/strategy.h"
#include "thinwire/train/gradient_sync.h"

namespace thinwire {
namespace {

Seconds since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Logits and classes as two and one dimensions: a row a sample, or a symbol.
at::Tensor rows(const at::Tensor& output) {
  return output.dim() > 2 ? output.flatten(0, output.dim() - 2) : output;
}

double hits(const at::Tensor& output, const at::Tensor& targets) {
  return static_cast<double>(
      rows(output.detach()).argmax(1).eq(targets.flatten()).sum().item<std::int64_t>());
}

}  // namespace

LossFn cross_entropy(double label_smoothing) {
  return [=](const at::Tensor& output, const at::Tensor& target) {
    return at::cross_entropy_loss(rows(output), target.flatten(), {}, at::Reduction::Mean, -100,
                                  label_smoothing);
  };
}

// Data parallelism where there is more than one rank. Modules register shared parameters under two
// names; the engine lists each once.
struct Trainer::Engine {
  Engine(const Network& model, Comm& world, const TrainerOptions& options)
      : sync(tensors(model.named_parameters()), tensors(model.named_buffers()), world,
             {.strategy = options.strategy,
              .grouping = options.grouping,
              .form = options.form,
              .algorithm = options.algorithm,
              .plan = options.plan,
              .order = options.order,
              .seed = options.seed}) {}

  static std::vector<NamedTensor> tensors(
      const torch::OrderedDict<std::string, at::Tensor>& named) {
    std::vector<NamedTensor> out;
    for (const auto& item : named) out.push_back({item.key(), item.value()});
    return out;
  }

  GradientSync sync;
};

Trainer::Trainer(std::shared_ptr<Network> model, const Spec& optimizer, LossFn loss, Comm* world,
                 const TrainerOptions& options)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      options_(options),
      team_(std::make_unique<Team>(world)) {
  optimizer_ = std::make_unique<NamedOptimizer>(optimizer, parameters());
  // One rank has no engine, and refuses what no engine would take all the same.
  make_strategy(options.strategy);
  if (const auto why = algorithm_fault(options.algorithm); !why.empty()) throw ConfigError(why);
  if (team_->size() > 1) engine_ = std::make_unique<Engine>(*model_, *world, options);
}
Trainer::~Trainer() = default;

NamedTensors Trainer::parameters() const {
  NamedTensors out;
  for (const auto& item : model_->named_parameters()) out.emplace_back(item.key(), item.value());
  return out;
}

NamedTensors Trainer::state() const {
  NamedTensors out = parameters();
  for (const auto& item : model_->named_buffers()) out.emplace_back(item.key(), item.value());
  return out;
}

NamedTensors Trainer::form_state() {
  NamedTensors out;
  if (engine_)
    for (auto& one : engine_->sync.form_state()) out.emplace_back(one.name, one.tensor);
  return out;
}

void Trainer::load_form_state(const NamedTensors& state) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : state) list.push_back({name, tensor});
  if (engine_) engine_->sync.load_form_state(list);
}

StepReport Trainer::step(const StepInput& input, double learning_rate, int stop_signal) {
  const auto begin = Clock::now();
  StepReport report;
  model_->train(true);
  optimizer_->set_learning_rate(learning_rate);
  optimizer_->zero_grad();
  if (engine_) {
    // Equal shares need no weights, and no exchange of counts.
    if (!input.equal_shares) engine_->sync.set_samples(input.count);
    if (input.count > 0) engine_->sync.begin();
  }
  // Sums over the ranks: loss, hits, targets, ranks that want to stop, their signals.
  std::array<double, 5> sums{};
  sums[3] = stop_signal ? 1 : 0;
  sums[4] = stop_signal;
  at::Tensor loss;
  if (input.count > 0) {
    at::Tensor output = model_->forward(input.inputs);
    if (engine_) {
      at::Tensor* const outputs[] = {&output};
      engine_->sync.mark(outputs);
    }
    loss = loss_(output, input.targets);
    const auto targets = static_cast<double>(input.targets.numel());
    sums[0] = loss.item<double>() * targets;
    sums[1] = options_.count_correct ? hits(output, input.targets) : 0;
    sums[2] = targets;
  }
  const Handle statistic = team_->sum(TeamMessage::statistic, step_, sums);
  if (loss.defined())
    loss.backward();  // with the engine: returns when the gradients are averaged
  else if (engine_)
    engine_->sync.join_without_batch();
  if (engine_) report.exposed_s = engine_->sync.last_step().exposed_s;
  if (options_.clip_norm > 0) clip_gradients(parameters(), options_.clip_norm);
  optimizer_->step();
  if (engine_) engine_->sync.end_update();
  const auto waiting = Clock::now();
  statistic.wait();
  report.exposed_s += since(waiting);
  if (sums[2] > 0) {
    report.loss = sums[0] / sums[2];
    report.accuracy = sums[1] / sums[2];
  }
  if (sums[3] > 0) report.stop_signal = static_cast<int>(sums[4] / sums[3]);
  ++step_;
  report.step_s = since(begin);
  return report;
}

std::int64_t Trainer::run(const StepSource& source, double learning_rate) {
  for (std::int64_t steps = 0;; ++steps) {
    std::optional<StepInput> mine = source();
    StepInput input = mine ? *mine : StepInput{};
    const auto counts = team_->all(TeamMessage::counts, step_, input.count);
    input.total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    input.equal_shares =
        std::all_of(counts.begin(), counts.end(), [&](auto count) { return count == counts[0]; });
    if (input.total == 0) return steps;
    step(input, learning_rate);
  }
}

Evaluation Trainer::evaluate(const StepSource& source) {
  const at::NoGradGuard no_grad;
  model_->train(false);
  // Batch norm has seen other batches on every rank since the last step: rank 0's view counts.
  std::int32_t part = 0;
  for (auto& buffer : model_->buffers())
    team_->copy_first({static_cast<std::int32_t>(TeamMessage::buffers), step_, part++},
                      buffer.data_ptr(), static_cast<Bytes>(buffer.nbytes()));
  std::array<double, 3> sums{};  // loss, hits, targets
  while (const std::optional<StepInput> input = source()) {
    if (input->count == 0) continue;
    const at::Tensor output = model_->forward(input->inputs);
    // Each loss as a double before adding, so that the cut into batches and ranks does not matter.
    sums[0] +=
        at::cross_entropy_loss(rows(output), input->targets.flatten(), {}, at::Reduction::None)
            .to(at::kDouble)
            .sum()
            .item<double>();
    sums[1] += hits(output, input->targets);
    sums[2] += static_cast<double>(input->targets.numel());
  }
  team_->sum(TeamMessage::evaluation, step_, sums).wait();
  Evaluation result;
  result.samples = static_cast<std::int64_t>(sums[2]);
  if (sums[2] > 0) {
    result.loss = sums[0] / sums[2];
    result.accuracy = sums[1] / sums[2];
  }
  return result;
}

GradientSync* Trainer::sync() { return engine_ ? &engine_->sync : nullptr; }
Trace Trainer::trace() const { return engine_ ? engine_->sync.trace() : Trace{}; }

std::string Trainer::describe() const {
  if (!engine_) return {};
  const Plan& plan = engine_->sync.plan();
  Bytes bytes = 0, largest = 0;
  for (const auto& bucket : plan.grouping) {
    Bytes sum = 0;
    for (const auto& slice : bucket.slices)
      sum += (slice.end - slice.begin) *
             dtype_bytes(plan.tensors[static_cast<std::size_t>(slice.tensor)].dtype);
    bytes += sum;
    largest = std::max(largest, sum);
  }
  return "gradients: " + format_bytes(bytes) + " a step in " +
         std::to_string(plan.grouping.size()) +
         (plan.grouping.size() == 1 ? " message"
                                    : " messages, the largest " + format_bytes(largest));
}

}  // namespace thinwire
