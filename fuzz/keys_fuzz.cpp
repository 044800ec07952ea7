// SPDX-License-Identifier: Apache-2.0
// Packed keys: refused as a DataError, or keys that ascend below n and, where the widths are the
// best ones, come back as the same bytes.
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/keys.h"
#include "thinwire/core/error.h"

// Two bytes of the number of keys and four of n come first.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire;
  if (size < 6) return 0;
  const std::size_t count = data[0] + 256U * (data[1] & 0x0fU);
  std::uint32_t n = 0;
  std::memcpy(&n, data + 2, 4);
  const std::span<const std::uint8_t> packed(data + 6, size - 6);
  std::vector<std::uint32_t> keys(count);
  std::size_t read = 0;
  try {
    read = kernels::unpack_keys(packed, n, keys);
  } catch (const DataError&) {
    return 0;
  }
  if (read > packed.size()) __builtin_trap();
  for (std::size_t i = 0; i < count; ++i)
    if (keys[i] >= n || (i > 0 && keys[i] <= keys[i - 1])) __builtin_trap();
  std::vector<std::uint8_t> again;
  kernels::pack_keys(keys, again);
  std::vector<std::uint32_t> back(count);
  if (again.size() > read || kernels::unpack_keys(again, n, back) != again.size() || back != keys)
    __builtin_trap();
  return 0;
}
