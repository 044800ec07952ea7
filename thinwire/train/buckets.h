// SPDX-License-Identifier: Apache-2.0
// The memory that gradients travel in: one contiguous tensor a bucket, and a view into it a
// parameter, with the parameter's own strides, which becomes its .grad.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "thinwire/plan/plan.h"

namespace thinwire {

class Buckets {
 public:
  /// parameters[i] is tensor i of the plan. A bucket of the plan holds whole tensors; a cut one is
  /// a ConfigError.
  Buckets(const Plan& plan, std::span<const at::Tensor> parameters);
  int count() const { return static_cast<int>(messages_.size()); }
  int bucket_of(int parameter) const { return bucket_of_[static_cast<std::size_t>(parameter)]; }
  const std::vector<int>& parameters_of(int bucket) const {
    return parameters_of_[static_cast<std::size_t>(bucket)];
  }
  /// What travels: flat and real (complex numbers as pairs).
  at::Tensor& message(int bucket) { return messages_[static_cast<std::size_t>(bucket)]; }
  const at::Tensor& view(int parameter) const {
    return views_[static_cast<std::size_t>(parameter)];
  }

 private:
  std::vector<at::Tensor> messages_, views_;
  std::vector<int> bucket_of_;
  std::vector<std::vector<int>> parameters_of_;
};

}  // namespace thinwire
