// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/profiler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"
#include "thinwire/core/median.h"
#include "thinwire/train/hooks.h"

namespace thinwire {
namespace {

constexpr int kLeastSteps = 5, kMostSteps = 40;
constexpr Seconds kEnough = 0.5;  // of measured steps

class Arrivals final : public BackwardListener {
 public:
  explicit Arrivals(std::size_t parameters) : last_s(parameters, 0) {}
  void contribution(int index, const at::Tensor&) override {
    last_s[static_cast<std::size_t>(index)] = now();
  }
  void reached() override {}
  void ended(bool) override {}
  Seconds now() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  Clock::time_point begin;
  std::vector<Seconds> last_s;  ///< since `begin`; 0: none
};

/// From the end of forward on, tensors last to first: one is there when all after it are. Returns
/// when all are.
Seconds share_out(Profile& profile, const std::vector<Seconds>& arrival, Seconds forward_s) {
  const std::size_t n = arrival.size();
  profile.forward_s.assign(n, 0);
  profile.backward_s.assign(n, 0);
  Seconds now = forward_s;
  for (std::size_t i = n; i-- > 0;) {
    const Seconds ready = std::max(now, arrival[i]);
    profile.backward_s[i] = ready - now;
    now = ready;
  }
  const Seconds backward = now - forward_s;
  for (std::size_t i = 0; i < n; ++i)
    profile.forward_s[i] = backward > 0 ? forward_s * profile.backward_s[i] / backward
                                        : forward_s / static_cast<double>(n);
  return now;
}

/// When the gradients of a step were there, since its forward began; 0: no gradient.
struct StepArrivals {
  Seconds begin_s = 0, forward_s = 0;
  std::vector<Seconds> gradient;
  bool seen = false;
};

}  // namespace

Profile profile_model(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                      const std::function<void()>& step) {
  std::vector<at::Tensor> tensors;
  Profile profile;
  for (const auto& [name, tensor] : parameters) {
    tensors.push_back(tensor);
    profile.params.push_back({name,
                              dtype_of(tensor.scalar_type()).value_or(DType::f32),
                              {tensor.sizes().begin(), tensor.sizes().end()}});
  }
  const auto arrivals = std::make_shared<Arrivals>(tensors.size());
  const ParameterHooks hooks(tensors, arrivals);
  std::vector<std::vector<Seconds>> seen(tensors.size());
  std::vector<Seconds> steps;
  Seconds spent = 0;
  for (int i = 0; i < kMostSteps && (i <= kLeastSteps || spent < kEnough); ++i) {
    std::fill(arrivals->last_s.begin(), arrivals->last_s.end(), 0);
    arrivals->begin = Clock::now();
    step();
    const Seconds took = arrivals->now();
    if (i == 0) continue;  // buffers are made and libraries warm up
    spent += took;
    steps.push_back(took);
    for (std::size_t p = 0; p < seen.size(); ++p) seen[p].push_back(arrivals->last_s[p]);
  }
  std::vector<Seconds> arrival;
  for (auto& one : seen) arrival.push_back(median(one));
  if (std::all_of(arrival.begin(), arrival.end(), [](Seconds at) { return at <= 0; }))
    throw ConfigError("profile: no parameter receives a gradient");
  Seconds first = std::numeric_limits<Seconds>::infinity();
  for (const Seconds at : arrival)
    if (at > 0) first = std::min(first, at);
  const Seconds ready = share_out(profile, arrival, first);
  profile.update_s = std::max(0.0, median(steps) - ready);
  return profile;
}

Profile profile_of(const Trace& trace, std::vector<TensorDesc> tensors, std::int64_t first,
                   std::int64_t last, Seconds rest_s) {
  std::map<std::int64_t, StepArrivals> steps;
  for (const Event& event : trace) {
    if (event.step < first || event.step >= last) continue;
    StepArrivals& step = steps[event.step];
    if (event.kind == OpKind::forward) {
      // Forwards whose backwards only add up come before the one whose gradients travel.
      if (step.gradient.empty()) step.begin_s = event.begin_s;
      step.gradient.assign(tensors.size(), 0);
      step.forward_s = event.end_s - step.begin_s;
    } else if (event.kind == OpKind::backward && !step.gradient.empty()) {
      step.gradient.at(static_cast<std::size_t>(event.index)) = event.end_s - step.begin_s;
      step.seen = true;
    }
  }
  std::erase_if(steps, [](const auto& one) { return !one.second.seen; });
  if (steps.empty()) throw ConfigError("profile: no parameter receives a gradient");
  const auto median_of = [&](auto value) {
    std::vector<Seconds> values;
    for (const auto& [number, step] : steps) values.push_back(value(step));
    return median(std::move(values));
  };
  std::vector<Seconds> arrival;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    arrival.push_back(median_of([i](const StepArrivals& step) { return step.gradient[i]; }));
  Profile profile;
  profile.params = std::move(tensors);
  share_out(profile, arrival, median_of([](const StepArrivals& step) { return step.forward_s; }));
  profile.update_s = rest_s;
  return profile;
}

}  // namespace thinwire
