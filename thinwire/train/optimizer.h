// SPDX-License-Identifier: Apache-2.0
// torch's own optimizers, named by spec strings, with their state in and out by parameter name.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"

namespace torch::optim {
class Optimizer;
}

namespace thinwire {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A thin hold on a torch optimizer over named parameters.
class NamedOptimizer {
 public:
  /// "sgd{momentum=0.9}", "adam{...}", "adamw{...}". ConfigError.
  NamedOptimizer(const Spec& spec, NamedTensors parameters);
  ~NamedOptimizer();
  void set_learning_rate(double rate);
  /// Updates from .grad; parameters without one are left as they are.
  void step();
  void zero_grad();
  /// State tensors as "NAME/momentum", "NAME/exp_avg", ... ; counts of steps as one-element i64.
  NamedTensors state() const;
  /// The reverse. DataError for names or shapes that do not fit these parameters.
  void load_state(const NamedTensors& state);

 private:
  NamedTensors parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(SpecReader&, std::vector<at::Tensor>)>;
const Registry<OptimizerFactory>& optimizers();

/// Scales all gradients so that their joint norm is at most `most`; returns the norm before.
double clip_gradients(const NamedTensors& parameters, double most);

}  // namespace thinwire
