// SPDX-License-Identifier: Apache-2.0
// The loop body of a training: one step of all ranks on their shares of a batch, and an evaluation
// that counts every sample once. Works on any module with one input and one output.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "thinwire/comm/comm.h"
#include "thinwire/plan/trace.h"
#include "thinwire/train/models.h"
#include "thinwire/train/optimizer.h"
#include "thinwire/train/team.h"

namespace thinwire {

class GradientSync;

/// Mean over the samples of the local batch.
using LossFn = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;
LossFn cross_entropy(double label_smoothing);

struct TrainerOptions {
  double clip_norm = 0;        ///< 0: none
  bool count_correct = true;   ///< outputs are logits and targets are classes
  std::string order = "plan";  ///< in which messages start: SyncOptions
  std::string strategy = "sync_sgd", grouping = "size_cap{bytes=4MiB}", form = "none", algorithm;
  std::string plan;  ///< JSON text of a plan in place of grouping and form
  std::uint64_t seed = 0;
};

/// One rank's share of a step. `count` may be 0.
struct StepInput {
  at::Tensor inputs, targets;
  std::int64_t count = 0;
  std::int64_t total = 0;  ///< samples of all ranks
  /// Every rank has as many; the same answer on all ranks. Otherwise they weigh by their counts.
  bool equal_shares = true;
};

/// What the ranks did together in a step.
struct StepReport {
  double loss = 0;                    ///< mean over all samples
  double accuracy = 0;                ///< share of targets hit
  int stop_signal = 0;                ///< not 0: some rank was asked to stop; the same on all ranks
  Seconds step_s = 0, exposed_s = 0;  ///< exposed: only waiting for other ranks
};

struct Evaluation {
  double loss = 0, accuracy = 0;
  std::int64_t samples = 0;
};

/// One rank's next share; nothing at its end.
using StepSource = std::function<std::optional<StepInput>()>;

class Trainer {
 public:
  /// Collective. `world` may be null (one rank) and outlives the trainer. Parameters of rank 0 are
  /// taken everywhere. ConfigError where the ranks' models differ.
  Trainer(std::shared_ptr<Network> model, const Spec& optimizer, LossFn loss, Comm* world,
          const TrainerOptions& options);
  ~Trainer();

  /// Collective. The gradient is the mean over all samples of all ranks. `stop_signal`: not 0 asks
  /// all ranks to stop after this step.
  StepReport step(const StepInput& input, double learning_rate, int stop_signal = 0);
  /// Collective: steps until every rank's source has ended; a rank that has ended first goes on
  /// taking part without weight. Returns the number of steps.
  std::int64_t run(const StepSource& source, double learning_rate);
  /// Collective. `batch(i)` gives this rank's i-th share, nothing at its end.
  Evaluation evaluate(const StepSource& source);

  const std::shared_ptr<Network>& model() const { return model_; }
  NamedTensors parameters() const;  ///< under the plain module's names
  NamedTensors state() const;       ///< parameters and buffers
  /// What the forms of gradients keep, of all ranks, on rank 0; collective. And back, on all ranks.
  NamedTensors form_state();
  void load_form_state(const NamedTensors& state);
  NamedOptimizer& optimizer() { return *optimizer_; }
  Team& team() { return *team_; }
  std::int64_t steps_done() const { return step_; }
  void set_steps_done(std::int64_t step) { step_ = step; }
  GradientSync* sync();  ///< the engine; null for one rank
  Trace trace() const;   ///< of this rank, as far as it is kept
  /// How the gradients travel, in words: groups of what size. Empty for one rank.
  std::string describe() const;

 private:
  struct Engine;
  std::shared_ptr<Network> model_;
  std::unique_ptr<NamedOptimizer> optimizer_;
  LossFn loss_;
  TrainerOptions options_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Engine> engine_;
  std::int64_t step_ = 0;
};

}  // namespace thinwire
