// SPDX-License-Identifier: Apache-2.0
// Bits of signs: any bytes of the right number decode to one of two values, as in the plain loops;
// another number of bytes is a DataError.
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/signs.h"
#include "thinwire/core/error.h"

// The first two bytes are the number of elements.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire;
  if (size < 2) return 0;
  const std::size_t count = data[0] + 256U * (data[1] & 0x1fU);
  const std::span<const std::uint8_t> bits(data + 2, size - 2);
  std::vector<float> out(count, 3), plain(count, 3);
  try {
    const kernels::SignValues values = kernels::scaled_signs(2);
    kernels::decode_signs(bits, values, out, Write::add);
    kernels::reference::decode_signs(bits, values, plain, Write::add);
    if (out != plain) __builtin_trap();
    for (const float each : out)
      if (each != 1 && each != 5) __builtin_trap();
    std::vector<std::uint8_t> vote(bits.size());
    const std::vector<std::span<const std::uint8_t>> votes{bits, bits, vote};
    kernels::majority_of_signs(votes, static_cast<std::int64_t>(count), vote);
    std::vector<std::uint8_t> again(bits.size());
    kernels::pack_signs_residual(out, values, again);
  } catch (const DataError&) {
    if (bits.size() == (count + 7) / 8) __builtin_trap();
  }
  return 0;
}
