// SPDX-License-Identifier: Apache-2.0
// Packed indices are refused as a DataError, or ascend below the end and are packed to the same
// bytes; what decodes is added to a tensor without a write beyond it.
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/indices.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/core/error.h"

// Four bytes of the number of elements and two of the number of indices come first.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire;
  std::uint32_t n = 0;
  std::uint16_t k = 0;
  if (size < 6) return 0;
  std::memcpy(&n, data, 4);
  std::memcpy(&k, data + 4, 2);
  const std::span<const std::uint8_t> packed(data + 6, size - 6);
  std::vector<std::uint32_t> indices(k);
  try {
    kernels::unpack_indices(packed, n, indices);
  } catch (const DataError&) {
    return 0;
  }
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (indices[i] >= n || (i > 0 && indices[i] <= indices[i - 1])) __builtin_trap();
  std::vector<std::uint8_t> back(packed.size());
  kernels::pack_indices(indices, n, back);
  if (!std::equal(back.begin(), back.end(), packed.begin())) __builtin_trap();
  std::vector<float> out(std::min(n, 5000U)), values(indices.size(), 1);
  try {
    kernels::decode_sparse(indices, values, out, Write::add);
  } catch (const DataError&) {
    if (n <= 5000) __builtin_trap();
  }
  return 0;
}
