// SPDX-License-Identifier: Apache-2.0
// Payloads within a bound: refused as a DataError, or decoded to the same values in both modes.
#include <cmath>
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/ranges.h"
#include "thinwire/core/error.h"

// Two bytes of the number of values come first.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire;
  if (size < 2) return 0;
  const std::size_t count = data[0] + 256U * (data[1] & 0x03U);
  const std::span<const std::uint8_t> bytes(data + 2, size - 2);
  std::vector<float> set(count, 7), added(count);
  try {
    kernels::decode_bounded(bytes, 1, set, Write::set);
  } catch (const DataError&) {
    return 0;
  }
  kernels::decode_bounded(bytes, 1, added, Write::add);
  for (std::size_t i = 0; i < count; ++i)
    if (set[i] != added[i] && !std::isnan(set[i])) __builtin_trap();
  return 0;
}
