// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/form_state.h"

#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// A slice of a bucket in values of its tensor, and where they begin in the bucket.
struct Place {
  std::string name;
  std::int64_t begin, end, offset;
};

std::vector<Place> places_of(const Plan& plan, const Bucket& bucket) {
  std::vector<Place> out;
  std::int64_t offset = 0;
  for (const Slice& slice : bucket.slices) {
    const TensorDesc& desc = plan.tensors[static_cast<std::size_t>(slice.tensor)];
    const bool pairs = desc.dtype == DType::c64 || desc.dtype == DType::c128;
    const std::int64_t each = pairs ? 2 : 1;
    out.push_back({desc.name, slice.begin * each, slice.end * each, offset});
    offset += (slice.end - slice.begin) * each;
  }
  return out;
}

/// [begin, end) out of the last brackets of a key.
std::optional<std::pair<std::int64_t, std::int64_t>> range_of(std::string_view key,
                                                              std::string_view brackets = "[]") {
  if (!key.ends_with(brackets[1])) return std::nullopt;
  const auto open = key.rfind(brackets[0]), colon = key.rfind(':');
  if (open == key.npos || colon == key.npos || colon < open) return std::nullopt;
  std::int64_t begin = -1, end = -1;
  const char* last = key.data() + key.size() - 1;
  const auto first = std::from_chars(key.data() + open + 1, key.data() + colon, begin);
  const auto second = std::from_chars(key.data() + colon + 1, last, end);
  if (first.ptr != key.data() + colon || second.ptr != last || begin < 0 || end < begin)
    return std::nullopt;
  return std::pair{begin, end};
}

}  // namespace

bool is_own(std::string_view key) { return range_of(key).has_value() || key.ends_with("[]"); }

SaveState::SaveState(FormState& state, std::string prefix, const Plan& plan, const Bucket& bucket)
    : state_(state), prefix_(std::move(prefix)), plan_(plan), bucket_(bucket) {}

void SaveState::tensor(const std::string& name, Tensor& value) {
  if (value.defined()) state_[prefix_ + name] = value.clone();
}

void SaveState::integer(const std::string& name, std::int64_t& value) {
  const Tensor one = at::empty({1}, at::kLong);
  *one.data_ptr<std::int64_t>() = value;
  state_[prefix_ + name] = one;
}

void SaveState::elements(const std::string& name, Tensor& value) { put(name, value, "[]"); }
void SaveState::shared_elements(const std::string& name, Tensor& value) { put(name, value, "()"); }
void SaveState::own(const std::string& name, Tensor& value) {
  if (value.defined()) state_[prefix_ + name + "[]"] = value.clone();
}

void SaveState::put(const std::string& name, Tensor& value, std::string_view brackets) {
  if (!value.defined()) return;
  for (const Place& place : places_of(plan_, bucket_))
    state_[fmt::format("{}{}/{}{}{}:{}{}", prefix_, name, place.name, brackets[0], place.begin,
                       place.end, brackets[1])] =
        value.narrow(0, place.offset, place.end - place.begin).clone();
}

LoadState::LoadState(const FormState& state, std::string prefix, const Plan& plan,
                     const Bucket& bucket)
    : state_(state), prefix_(std::move(prefix)), plan_(plan), bucket_(bucket) {}

void LoadState::tensor(const std::string& name, Tensor& value) {
  if (const auto found = state_.find(prefix_ + name); found != state_.end())
    value = found->second.clone();
}

void LoadState::integer(const std::string& name, std::int64_t& value) {
  const auto found = state_.find(prefix_ + name);
  if (found == state_.end()) return;
  if (found->second.numel() != 1 || found->second.scalar_type() != at::kLong)
    throw DataError(fmt::format("state '{}{}' must be one integer", prefix_, name));
  value = *found->second.const_data_ptr<std::int64_t>();
}

void LoadState::elements(const std::string& name, Tensor& value) {
  put_together(name, value, "[]");
}
void LoadState::shared_elements(const std::string& name, Tensor& value) {
  put_together(name, value, "()");
}
void LoadState::own(const std::string& name, Tensor& value) { tensor(name + "[]", value); }

void LoadState::put_together(const std::string& name, Tensor& value, std::string_view brackets) {
  const auto places = places_of(plan_, bucket_);
  const std::int64_t total =
      places.empty() ? 0 : places.back().offset + places.back().end - places.back().begin;
  Tensor out;
  for (const Place& place : places) {
    const std::string start = fmt::format("{}{}/{}{}", prefix_, name, place.name, brackets[0]);
    for (auto it = state_.lower_bound(start); it != state_.end(); ++it) {
      if (!it->first.starts_with(start)) break;
      const auto range = range_of(it->first, brackets);
      if (!range || range->second - range->first != it->second.numel())
        throw DataError(fmt::format("state '{}' has {} values", it->first, it->second.numel()));
      const std::int64_t begin = std::max(range->first, place.begin);
      const std::int64_t count = std::min(range->second, place.end) - begin;
      if (count <= 0) continue;
      if (!out.defined()) {
        const DType type = plan_.tensors[static_cast<std::size_t>(bucket_.slices[0].tensor)].dtype;
        const bool wide = type == DType::f64 || type == DType::c128;
        out = at::zeros({total}, wide ? at::kDouble : at::kFloat);
      }
      out.narrow(0, place.offset + begin - place.begin, count)
          .copy_(it->second.narrow(0, begin - range->first, count));
    }
  }
  if (out.defined()) value = out;
}

FormState redistribute(std::span<const FormState> earlier, int rank, int ranks) {
  FormState out;
  for (std::size_t r = 0; r < earlier.size(); ++r)
    for (const auto& [key, tensor] : earlier[r]) {
      if (!is_own(key)) {
        if (r == 0) out[key] = tensor;
        continue;
      }
      if (static_cast<int>(r) % ranks != rank) continue;
      const auto [place, fresh] = out.try_emplace(key, tensor);
      if (!fresh && !key.ends_with("[]")) place->second = place->second.add(tensor);
    }
  return out;
}

}  // namespace thinwire
