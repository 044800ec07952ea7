// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/profiler.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"
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

Seconds median(std::vector<Seconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// From the first gradient on, tensors last to first: one is there when all after it are.
void share_out(Profile& profile, const std::vector<Seconds>& arrival, Seconds step_s) {
  Seconds first = std::numeric_limits<Seconds>::infinity();
  for (const Seconds at : arrival)
    if (at > 0) first = std::min(first, at);
  Seconds now = first;
  for (std::size_t i = arrival.size(); i-- > 0;) {
    const Seconds ready = std::max(now, arrival[i]);
    profile.backward_s[i] = ready - now;
    now = ready;
  }
  const Seconds backward = now - first;
  for (std::size_t i = 0; i < arrival.size(); ++i)
    profile.forward_s[i] = backward > 0 ? first * profile.backward_s[i] / backward
                                        : first / static_cast<double>(arrival.size());
  profile.update_s = std::max(0.0, step_s - now);
}

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
  profile.forward_s.assign(tensors.size(), 0);
  profile.backward_s.assign(tensors.size(), 0);
  share_out(profile, arrival, median(steps));
  return profile;
}

}  // namespace thinwire
