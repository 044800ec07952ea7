// SPDX-License-Identifier: Apache-2.0
// The memory that gradients travel in. Tensors that share a message lie side by side in one tensor,
// and a view into it with the parameter's own strides becomes its .grad. A gradient that is a
// message of its own travels where autograd has put it.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "thinwire/plan/plan.h"

namespace thinwire {

class Buckets {
 public:
  /// parameters[i] is tensor i of the plan. Parts of a cut tensor follow each other in one bucket
  /// or in buckets one after the other, elements counted as they lie in the parameter's memory;
  /// ConfigError where they do not. in_place[b]: what bucket b sends is sent, and received, in the
  /// memory it is given; then a bucket of one whole real tensor needs no memory here.
  Buckets(const Plan& plan, std::span<const at::Tensor> parameters,
          const std::vector<bool>& in_place);
  int count() const { return static_cast<int>(messages_.size()); }
  /// The buckets that hold a part of the parameter.
  struct Range {
    int first = -1, last = -1;
  };
  Range buckets_of(int parameter) const { return range_of_[static_cast<std::size_t>(parameter)]; }
  /// Those of which the bucket holds a part.
  const std::vector<int>& parameters_of(int bucket) const {
    return parameters_of_[static_cast<std::size_t>(bucket)];
  }
  /// Whether the parameter's gradient travels in its own memory.
  bool alone(int parameter) const { return !slots_[static_cast<std::size_t>(parameter)].defined(); }

  /// What travels, dense and real (complex numbers as pairs). For a gradient that travels alone:
  /// after put().
  at::Tensor& message(int bucket);
  /// Where the parameter's gradient travels; for one that travels alone: after put(), until
  /// let_go().
  const at::Tensor& place(int parameter) const {
    const at::Tensor& slot = slots_[static_cast<std::size_t>(parameter)];
    return slot.defined() ? slot : own_[static_cast<std::size_t>(parameter)];
  }
  /// Brings a gradient to its place: one copy, or none where it is there already, or where it
  /// travels alone and `owned` says that nothing else refers to its memory.
  /// Returns, of a copy, how many of its values are not finite if `search` (else 0); -1: no copy.
  std::int64_t put(int parameter, const at::Tensor& grad, bool owned, bool search = false);
  void put_zero(int parameter);
  /// The step is over; memory of a gradient that travels alone belongs to its .grad only.
  void let_go(int parameter) { own_[static_cast<std::size_t>(parameter)].reset(); }

 private:
  /// Buckets [begin, end), which share tensors, in one memory.
  void lay_out(const Plan& plan, std::size_t begin, std::size_t end,
               std::span<const at::Tensor> parameters, bool in_place);
  struct Layout {
    std::vector<std::int64_t> sizes, strides;
    at::TensorOptions options;
  };
  std::vector<at::Tensor> messages_;  ///< undefined: the one tensor of the bucket travels alone
  std::vector<at::Tensor> slots_;     ///< per parameter; undefined: it travels alone
  std::vector<at::Tensor> own_;       ///< per parameter that travels alone: its gradient, in a step
  std::vector<Layout> layouts_;
  std::vector<Range> range_of_;
  std::vector<std::vector<int>> parameters_of_;
};

}  // namespace thinwire
