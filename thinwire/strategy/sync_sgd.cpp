// SPDX-License-Identifier: Apache-2.0
// Synchronous SGD: every rank computes gradients of its own batch, all ranks step with their mean.
// Update rule: grad = (1/n) sum over ranks r of grad_r; then the optimizer.
// Bytes and rounds: one all_reduce a bucket and step, overlapped with the backward, and the step
// header. No state of its own.
#include "thinwire/strategy/strategy.h"

namespace thinwire {
namespace {

class SyncSgd : public Strategy {
 public:
  void declare(PlanBuilder& plan, const Profile&) override {
    gradients_ = declare_gradient_mean(plan);
  }
  void on(Phase phase, Step& step) override {
    if (step.starts(gradients_, phase)) step.start(gradients_);
    if (step.needs(gradients_, phase)) step.wait(gradients_);
  }

 private:
  int gradients_ = 0;
};

}  // namespace

void register_sync_sgd(StrategyRegistry& registry) {
  registry.add(
      "sync_sgd",
      [](const Spec& spec) {
        SpecReader(spec).finish();
        return std::make_unique<SyncSgd>();
      },
      "every step with the mean gradient of all ranks");
}

}  // namespace thinwire
