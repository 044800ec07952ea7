// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: a factor in [0, 1] of the largest rate, a pure function of the step. No
// torch.
#pragma once
#include <cstdint>
#include <functional>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"

namespace thinwire {

struct ScheduleInput {
  std::int64_t steps = 1;            ///< of the whole run
  std::int64_t steps_per_epoch = 1;  ///< of one pass over the data
};
/// Factor of step `step` (from 0).
using RateSchedule = std::function<double(std::int64_t step)>;

/// "constant", "step{every=30,factor=0.1}", "cosine{floor=0}"; each takes warmup= (epochs of linear
/// rise; the first step already has a rate above zero). ConfigError.
RateSchedule make_schedule(const Spec& spec, const ScheduleInput& input);
using ScheduleFactory = std::function<RateSchedule(SpecReader&, const ScheduleInput&)>;
const Registry<ScheduleFactory>& schedules();

}  // namespace thinwire
