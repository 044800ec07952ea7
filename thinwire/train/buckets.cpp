// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/buckets.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

std::vector<std::int64_t> contiguous_strides(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

at::Tensor slot(const at::Tensor& flat, const at::Tensor& parameter, std::int64_t offset) {
  if (parameter.is_non_overlapping_and_dense())
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset);
  return flat.as_strided(parameter.sizes(), contiguous_strides(parameter.sizes()), offset);
}

}  // namespace

Buckets::Buckets(const Plan& plan, std::span<const at::Tensor> parameters)
    : views_(parameters.size()), bucket_of_(parameters.size(), -1) {
  // Views that autograd does not know as views: optimizers detach gradients in place, which it
  // refuses for views.
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (std::size_t b = 0; b < plan.grouping.size(); ++b) {
    const auto& slices = plan.grouping[b].slices;
    std::int64_t elements = 0;
    for (const Slice& slice : slices) {
      const at::Tensor& parameter = parameters[static_cast<std::size_t>(slice.tensor)];
      if (slice.begin != 0 || slice.end != parameter.numel())
        throw ConfigError(fmt::format(
            "plan: bucket {} holds elements [{}, {}) of '{}', but gradients travel in whole "
            "tensors of {} elements",
            b, slice.begin, slice.end, plan.tensors[static_cast<std::size_t>(slice.tensor)].name,
            parameter.numel()));
      elements += parameter.numel();
    }
    const at::Tensor flat = at::zeros(
        {elements},
        parameters[static_cast<std::size_t>(slices.front().tensor)].options().requires_grad(false));
    messages_.push_back(flat.is_complex() ? at::view_as_real(flat) : flat);
    std::int64_t offset = 0;
    auto& members = parameters_of_.emplace_back();
    for (const Slice& slice : slices) {
      const auto tensor = static_cast<std::size_t>(slice.tensor);
      views_[tensor] = slot(flat, parameters[tensor], offset);
      bucket_of_[tensor] = static_cast<int>(b);
      members.push_back(slice.tensor);
      offset += parameters[tensor].numel();
    }
  }
}

}  // namespace thinwire
