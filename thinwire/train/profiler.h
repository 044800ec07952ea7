// SPDX-License-Identifier: Apache-2.0
// How long the layers of a model take, from hooks on its parameters.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "thinwire/plan/profile.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

/// Runs `step` (a whole training step of this rank alone: forward, backward, update) a few times
/// and tells from hooks when the gradient of each parameter is there: medians over the steps after
/// the first. A parameter's backward is the time since the gradient before it; what comes before
/// the first gradient is forward, shared out in proportion to the backward, for nothing in a module
/// tells the two apart; what comes after the last one is the update. All together they make the
/// median step. ConfigError where no parameter receives a gradient.
Profile profile_model(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                      const std::function<void()>& step);

/// The same from what an engine has recorded of the steps from `first` to before `last`, which
/// should wait for no exchange before their last gradient is there. `tensors`: those that events
/// number. `rest_s`: what a step takes beside forward, backward and waiting: the optimizer, the
/// next batch. Forward ends where the trace says so. ConfigError where no step of them has a
/// gradient.
Profile profile_of(const Trace& trace, std::vector<TensorDesc> tensors, std::int64_t first,
                   std::int64_t last, Seconds rest_s);

}  // namespace thinwire
