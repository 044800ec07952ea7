// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace thinwire {
namespace {

double in_range(const char* what, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw ConfigError(fmt::format("{} must be in [{}, {}], got {}", what, least, most, value));
  return value;
}

RateSchedule constant(SpecReader&, const ScheduleInput&) {
  return [](std::int64_t) { return 1.0; };
}

RateSchedule steps_down(SpecReader& reader, const ScheduleInput& input) {
  const double every = in_range("step: every", reader.number("every", 30), 1e-6, 1e9);
  const double factor = in_range("step: factor", reader.number("factor", 0.1), 0, 1);
  const double period = every * static_cast<double>(input.steps_per_epoch);
  return [=](std::int64_t step) {
    return std::pow(factor, std::floor(static_cast<double>(step) / period));
  };
}

RateSchedule cosine(SpecReader& reader, const ScheduleInput& input) {
  const double floor = in_range("cosine: floor", reader.number("floor", 0), 0, 1);
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, input.steps));
  return [=](std::int64_t step) {
    const double part = std::min(1.0, static_cast<double>(step) / steps);
    return floor + (1 - floor) * (1 + std::cos(std::numbers::pi * part)) / 2;
  };
}

}  // namespace

const Registry<ScheduleFactory>& schedules() {
  static const Registry<ScheduleFactory> registry = [] {
    Registry<ScheduleFactory> r("schedule");
    r.add("constant", constant, "warmup=0 (epochs)");
    r.add("step", steps_down, "every=30 (epochs), factor=0.1, warmup=0");
    r.add("cosine", cosine, "from 1 down to floor=0 over the run, warmup=0");
    return r;
  }();
  return registry;
}

RateSchedule make_schedule(const Spec& spec, const ScheduleInput& input) {
  const auto& entry = schedules().find(spec.name);
  SpecReader reader(spec);
  const RateSchedule shape = entry.make(reader, input);
  const double warmup =
      in_range((spec.name + ": warmup").c_str(), reader.number("warmup", 0), 0, 1e9);
  reader.finish();
  const double rise = warmup * static_cast<double>(input.steps_per_epoch);
  return [=](std::int64_t step) {
    const double begin = rise > 0 ? std::min(1.0, static_cast<double>(step + 1) / rise) : 1.0;
    return begin * shape(step);
  };
}

}  // namespace thinwire
