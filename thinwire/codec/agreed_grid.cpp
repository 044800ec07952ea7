// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/agreed_grid.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/codec/bytes.h"
#include "thinwire/core/error.h"

namespace thinwire {

// The ranks of a group are counted by the largest of them, so that one message does for both.
Proposal AgreedGrid::propose(std::span<const float> scales, const Slot& slot) {
  Tensor value = at::empty({static_cast<std::int64_t>(scales.size()) + 1}, at::kFloat);
  const auto to = floats_in(value);
  std::copy(scales.begin(), scales.end(), to.begin());
  to.back() = static_cast<float>(slot.rank + 1);
  return {.value = value, .op = Combine::max};
}

std::vector<float> AgreedGrid::agreed(std::span<const float> own, const Slot& slot) const {
  if (slot.agreed.empty()) return {own.begin(), own.end()};
  const auto all = floats_of(slot.agreed[0]);
  TW_ASSERT(all.size(), ==, own.size() + 1);
  if (all.back() > static_cast<float>(size_.ranks))
    throw ConfigError(
        fmt::format("{}: {} ranks add their codes, and fields of {} bits hold those of {}; write "
                    "{}{{ranks={}}}",
                    codec_, all.back(), size_.bits, size_.ranks, codec_, all.back()));
  return {all.begin(), all.end() - 1};
}

Payload AgreedGrid::pack(std::span<const std::int16_t> codes) {
  TW_ASSERT(static_cast<std::int64_t>(codes.size()), ==, count_);
  const std::int64_t words = kernels::sum_words(count_, size_.bits);
  if (!words_.defined()) words_ = at::empty({words}, at::kLong);
  kernels::pack_sums(codes, size_.bits,
                     {words_.data_ptr<std::int64_t>(), static_cast<std::size_t>(words)});
  return {.parts = {words_}};
}

std::span<const std::int64_t> AgreedGrid::words_of(const Payload& payload) const {
  const std::int64_t words = kernels::sum_words(count_, size_.bits);
  if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != at::kLong ||
      payload.parts[0].numel() != words || !payload.parts[0].is_contiguous())
    throw DataError(fmt::format("{}: a payload must be one part of {} words", codec_, words));
  return {payload.parts[0].const_data_ptr<std::int64_t>(), static_cast<std::size_t>(words)};
}

}  // namespace thinwire
