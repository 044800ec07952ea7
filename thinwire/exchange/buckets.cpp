// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/buckets.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/exchange/finite.h"

namespace thinwire {
namespace {

std::vector<std::int64_t> packed_strides(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

std::vector<std::int64_t> strides_of(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense() ? parameter.strides().vec()
                                                  : packed_strides(parameter.sizes());
}

void check_whole(const Plan& plan, std::size_t bucket, const Slice& slice,
                 const at::Tensor& parameter) {
  if (slice.begin == 0 && slice.end == parameter.numel()) return;
  throw ConfigError(
      fmt::format("plan: bucket {} holds elements [{}, {}) of '{}', but gradients travel in whole "
                  "tensors of {} "
                  "elements",
                  bucket, slice.begin, slice.end,
                  plan.tensors[static_cast<std::size_t>(slice.tensor)].name, parameter.numel()));
}

}  // namespace

Buckets::Buckets(const Plan& plan, std::span<const at::Tensor> parameters,
                 const std::vector<bool>& in_place)
    : slots_(parameters.size()), own_(parameters.size()), bucket_of_(parameters.size(), -1) {
  for (const at::Tensor& parameter : parameters)
    layouts_.push_back(
        {parameter.sizes().vec(), strides_of(parameter), parameter.options().requires_grad(false)});
  // Views that autograd does not know as views: optimizers detach gradients in place, which it
  // refuses for views.
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (std::size_t b = 0; b < plan.grouping.size(); ++b) {
    const auto& slices = plan.grouping[b].slices;
    auto& members = parameters_of_.emplace_back();
    std::int64_t elements = 0;
    for (const Slice& slice : slices) {
      const auto tensor = static_cast<std::size_t>(slice.tensor);
      check_whole(plan, b, slice, parameters[tensor]);
      bucket_of_[tensor] = static_cast<int>(b);
      members.push_back(slice.tensor);
      elements += parameters[tensor].numel();
    }
    at::Tensor& message = messages_.emplace_back();
    const auto first = static_cast<std::size_t>(members.front());
    if (members.size() == 1 && in_place[b] && !parameters[first].is_complex()) continue;
    const at::Tensor flat = at::zeros({elements}, layouts_[first].options);
    message = flat.is_complex() ? at::view_as_real(flat) : flat;
    std::int64_t offset = 0;
    for (const int member : members) {
      const auto tensor = static_cast<std::size_t>(member);
      slots_[tensor] = flat.as_strided(layouts_[tensor].sizes, layouts_[tensor].strides, offset);
      offset += parameters[tensor].numel();
    }
  }
}

at::Tensor& Buckets::message(int bucket) {
  at::Tensor& message = messages_[static_cast<std::size_t>(bucket)];
  return message.defined() ? message
                           : own_[static_cast<std::size_t>(parameters_of(bucket).front())];
}

std::int64_t Buckets::put(int parameter, const at::Tensor& grad, bool owned, bool search) {
  const auto i = static_cast<std::size_t>(parameter);
  at::Tensor& place = slots_[i].defined() ? slots_[i] : own_[i];
  if (place.is_same(grad)) return -1;
  if (!slots_[i].defined()) {
    const Layout& layout = layouts_[i];
    if (owned && grad.strides() == layout.strides) {
      place = grad;
      return -1;
    }
    place = at::empty_strided(layout.sizes, layout.strides, layout.options);
  }
  if (search) return copy_counting_not_finite(place, grad);
  place.copy_(grad);
  return 0;
}

void Buckets::put_zero(int parameter) {
  const auto i = static_cast<std::size_t>(parameter);
  if (!slots_[i].defined())
    own_[i] = at::empty_strided(layouts_[i].sizes, layouts_[i].strides, layouts_[i].options);
  own_[i].defined() ? own_[i].zero_() : slots_[i].zero_();
}

}  // namespace thinwire
