// SPDX-License-Identifier: Apache-2.0
// How long the layers of a model take, from hooks on its parameters.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "thinwire/plan/profile.h"

namespace thinwire {

/// Runs `step` (a whole training step of this rank alone: forward, backward, update) a few times
/// and tells from hooks when the gradient of each parameter is there: medians over the steps after
/// the first. A parameter's backward is the time since the gradient before it; what comes before
/// the first gradient is forward, shared out in proportion to the backward, for nothing in a module
/// tells the two apart; what comes after the last one is the update. All together they make the
/// median step. ConfigError where no parameter receives a gradient.
Profile profile_model(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                      const std::function<void()>& step);

}  // namespace thinwire
