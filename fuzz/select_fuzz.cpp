// SPDX-License-Identifier: Apache-2.0
// The fast selection against sorting, over any floats: the same elements, and what is not selected
// stays. The input's size sets the number of elements, repeated so that a bound is sampled.
#include <bit>
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/select.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire::kernels;
  if (size < 8) return 0;
  std::uint16_t k = 0, copies = 0;
  std::memcpy(&k, data, 2);
  std::memcpy(&copies, data + 2, 2);
  std::vector<float> some((size - 4) / 4), x;
  std::memcpy(some.data(), data + 4, some.size() * 4);
  for (std::size_t c = 0; c <= copies % 64U && x.size() < 100'000; ++c)
    x.insert(x.end(), some.begin(), some.end());
  for (float& each : x)  // as an addition makes them, so that take() selects from the same
    if (each != each) each = std::bit_cast<float>(std::bit_cast<std::uint32_t>(each) | 0x400000U);
  Selection wanted, got;
  reference::select_largest(x, k, wanted);
  TopK top;
  top.select(x, k, got);
  if (got.indices != wanted.indices) __builtin_trap();
  std::vector<float> memory(x.size(), -0.0F);
  top.take(memory, x, k, got);
  if (got.indices != wanted.indices) __builtin_trap();
  zero_at(x, wanted.indices);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (memory[i] != x[i] && x[i] == x[i]) __builtin_trap();
  return 0;
}
