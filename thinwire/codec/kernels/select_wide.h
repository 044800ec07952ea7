// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: the pass over memory of select.h. Elements whose magnitude, taken as an
// integer, is greater than `above` are appended to `indices` (counted from `base`) and `values`, in
// order; where `memory` is not null, memory += x comes first and the selection is from memory.
// With `takes`, what is appended is replaced by 0 in memory. Returns how many were appended. Both
// outputs need room for count + 16; count is at most kStreams * kPage of lanes.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thinwire::kernels {

struct Collect {
  float* memory = nullptr;
  const float* x = nullptr;
  std::size_t count = 0;
  std::uint32_t base = 0;
  std::int32_t above = -1;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  bool takes = false;  ///< only with a memory
};

std::size_t collect_plain(const Collect& job);
std::size_t collect_avx2(const Collect& job);
std::size_t collect_avx512(const Collect& job);
std::size_t count_above_avx2(const float* x, std::size_t count, std::int32_t above);

}  // namespace thinwire::kernels
