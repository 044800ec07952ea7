// SPDX-License-Identifier: Apache-2.0
// One exchange of some tensors between ranks, in any form.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tests/train/sync_ranks.h"
#include "thinwire/exchange/exchanger.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire::test {

/// All tensors in one bucket.
inline Plan plan_of(std::vector<TensorDesc> tensors, int ranks, const std::string& form,
                    const std::string& algorithm = "") {
  Grouping grouping{{}};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    grouping[0].slices.push_back({static_cast<int>(i), 0, elements(tensors[i])});
  PlanBuilder builder({.tensors = std::move(tensors),
                       .grouping = std::move(grouping),
                       .ranks = ranks,
                       .form = parse_chain(form),
                       .algorithm = algorithm});
  declare_gradient_mean(builder);
  return builder.plan();
}

/// One rank's end of it.
class OneExchange {
 public:
  OneExchange(Comm& comm, std::vector<TensorDesc> tensors, const std::string& form,
              const std::string& algorithm = "")
      : recorder_(comm.rank()),
        exchanger_(comm, plan_of(std::move(tensors), comm.size(), form, algorithm), recorder_) {}
  /// What comes out of `data` in the next step.
  at::Tensor step(const at::Tensor& data) {
    at::Tensor out = data.clone();
    exchanger_.start(0, out, {.step = step_++, .seed = 5});
    exchanger_.wait(0);
    return out;
  }
  Exchanger& exchanger() { return exchanger_; }
  /// Of the one tensor with this name, or undefined.
  at::Tensor residual(const std::string& name) const {
    for (const auto& [key, tensor] : exchanger_.state())
      if (key.starts_with("gradient/ef/residual/" + name + "[")) return tensor;
    return {};
  }

 private:
  Recorder recorder_;
  Exchanger exchanger_;
  std::int64_t step_ = 0;
};

}  // namespace thinwire::test
