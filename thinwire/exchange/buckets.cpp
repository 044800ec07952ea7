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

/// Whether slice `next` goes on with the tensor where `slice` ends.
bool goes_on(const Slice& slice, const Slice& next) {
  return slice.tensor == next.tensor && slice.end == next.begin && slice.begin < slice.end;
}

/// The first bucket behind those that share tensors with bucket `begin` or with each other.
std::size_t end_of_run(const Grouping& grouping, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < grouping.size() &&
         goes_on(grouping[end - 1].slices.back(), grouping[end].slices.front()))
    ++end;
  return end;
}

[[noreturn]] void refuse_parts(const Plan& plan, std::size_t bucket, const Slice& slice) {
  throw ConfigError(fmt::format(
      "plan: bucket {} holds elements [{}, {}) of '{}', but the parts of a tensor must follow each "
      "other in one bucket or in buckets one after the other",
      bucket, slice.begin, slice.end, plan.tensors[static_cast<std::size_t>(slice.tensor)].name));
}

}  // namespace

Buckets::Buckets(const Plan& plan, std::span<const at::Tensor> parameters,
                 const std::vector<bool>& in_place)
    : messages_(plan.grouping.size()),
      slots_(parameters.size()),
      own_(parameters.size()),
      range_of_(parameters.size()),
      parameters_of_(plan.grouping.size()) {
  for (const at::Tensor& parameter : parameters)
    layouts_.push_back(
        {parameter.sizes().vec(), strides_of(parameter), parameter.options().requires_grad(false)});
  // Views that autograd does not know as views: optimizers detach gradients in place, which it
  // refuses for views.
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (std::size_t begin = 0; begin < plan.grouping.size();) {
    const std::size_t end = end_of_run(plan.grouping, begin);
    lay_out(plan, begin, end, parameters, in_place[begin]);
    begin = end;
  }
}

void Buckets::lay_out(const Plan& plan, std::size_t begin, std::size_t end,
                      std::span<const at::Tensor> parameters, bool in_place) {
  std::vector<std::int64_t> offsets{0};              // of the buckets
  std::vector<std::pair<int, std::int64_t>> places;  // of the tensors
  const Slice* before = nullptr;
  std::int64_t at = 0;
  for (std::size_t b = begin; b < end; ++b) {
    for (const Slice& slice : plan.grouping[b].slices) {
      const auto tensor = static_cast<std::size_t>(slice.tensor);
      const bool more = before != nullptr && goes_on(*before, slice);
      const bool ends = before == nullptr || more ||
                        before->end == parameters[static_cast<std::size_t>(before->tensor)].numel();
      if (!ends) refuse_parts(plan, b, *before);
      if (!more && (slice.begin != 0 || range_of_[tensor].first >= 0)) refuse_parts(plan, b, slice);
      if (!more) {
        places.emplace_back(slice.tensor, at);
        range_of_[tensor].first = static_cast<int>(b);
      }
      range_of_[tensor].last = static_cast<int>(b);
      auto& members = parameters_of_[b];
      if (members.empty() || members.back() != slice.tensor) members.push_back(slice.tensor);
      at += slice.end - slice.begin;
      before = &slice;
    }
    offsets.push_back(at);
  }
  if (before->end != parameters[static_cast<std::size_t>(before->tensor)].numel())
    refuse_parts(plan, end - 1, *before);
  const auto first = static_cast<std::size_t>(places.front().first);
  if (end == begin + 1 && places.size() == 1 && in_place && !parameters[first].is_complex()) return;
  const at::Tensor flat = at::zeros({at}, layouts_[first].options);
  const at::Tensor real = flat.is_complex() ? at::view_as_real(flat) : flat;
  for (std::size_t b = begin; b < end; ++b)
    messages_[b] = real.narrow(0, offsets[b - begin], offsets[b - begin + 1] - offsets[b - begin]);
  for (const auto& [member, offset] : places) {
    const auto tensor = static_cast<std::size_t>(member);
    slots_[tensor] = flat.as_strided(layouts_[tensor].sizes, layouts_[tensor].strides, offset);
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
