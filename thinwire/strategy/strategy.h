// SPDX-License-Identifier: Apache-2.0
// When exchanges start and when they are needed. A strategy declares its exchanges into a plan and
// is then told the phases of each step; the plan's own times decide what happens in which.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/exchange/buckets.h"
#include "thinwire/exchange/exchanger.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire {

/// What a strategy sees of the step that runs. Made by the engine, once; it moves from step to
/// step.
class Step {
 public:
  /// `gradients`: the buckets of gradients, filled by the engine; null where the plan exchanges
  /// none. `declared`: of the strategy, in its order. All outlive the step.
  Step(Exchanger& exchanger, std::span<const Exchange> declared,
       std::span<const at::Tensor> parameters, Buckets* gradients, std::uint64_t seed = 0);

  std::int64_t number() const { return slot_.step; }
  Rank rank() const;
  int ranks() const;
  /// Tensor i of the plan.
  std::span<const at::Tensor> parameters() const { return parameters_; }

  /// Whether the exchanges of this declaration start, or are needed, at this phase of this step.
  bool starts(int declared, Phase phase) const;
  bool needs(int declared, Phase phase) const;
  /// Starts them: at grad_ready that of the bucket whose gradients are there, else those of all
  /// buckets. Collective, as are all that follow. A gradient is combined in its bucket, a parameter
  /// goes out as it is now.
  void start(int declared);
  /// Waits for those under way; combined parameters are written back.
  void wait(int declared);
  void exchange(int declared) {
    start(declared);
    wait(declared);
  }

  /// For the engine: where the step stands. `bucket` counts at grad_ready.
  void move_to(std::int64_t step, int bucket = -1);
  /// Whether what starts now is fit to be sent (Slot::counts).
  void set_counts(bool counts) { slot_.counts = counts; }
  /// From here to the next step gradients are not waited for but taken back, where a memory has
  /// something to lose.
  void skip() { skips_ = true; }

 private:
  struct Declared {
    Exchange sentence;
    std::vector<int> exchanges;  ///< by bucket
    bool under_way = false;      ///< parameters have gone out and are not back
  };
  void start_bucket(const Declared& one, int bucket);

  Exchanger& exchanger_;
  std::vector<Declared> declared_;
  std::span<const at::Tensor> parameters_;
  Buckets* gradients_;
  std::unique_ptr<Buckets> values_;  ///< parameters on their way
  Slot slot_;
  int bucket_ = -1;
  bool skips_ = false;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Says which exchanges there are, whenever a plan is made. The same on all ranks.
  virtual void declare(PlanBuilder& plan, const Profile& profile) = 0;
  /// Called on all ranks in the same order: step_begin before a forward, grad_ready when the
  /// gradients of a bucket stand in it (in plan order, or one agreed on), backward_end when all do,
  /// update_begin before the optimizer, update_end after it.
  virtual void on(Phase phase, Step& step) = 0;
  virtual void visit_state(StateVisitor& visitor);
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const Spec&)>;
using StrategyRegistry = Registry<StrategyFactory>;
/// The strategies of this build and those added by add_strategy.
const StrategyRegistry& strategies();
/// A strategy of the program's own, for the whole process. Call it before any engine is built, on
/// all ranks.
void add_strategy(std::string name, StrategyFactory make, std::string help);
/// ConfigError for an unknown name or option.
std::unique_ptr<Strategy> make_strategy(std::string_view spec);

}  // namespace thinwire
