// SPDX-License-Identifier: Apache-2.0
// Packed levels: refused as a DataError, or decoded to values between the largest and the smallest,
// the same with and without vector code.
#include <cmath>
#include <vector>

#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace {

using namespace thinwire;

bool decode(std::span<const std::uint8_t> packed, int bits, kernels::Levels levels,
            std::vector<float>& out) {
  try {
    kernels::decode_levels(packed, bits, levels, out, Write::set);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

// Bits, levels (as far as they fit), and two bytes of the number of elements come first.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 4) return 0;
  const int bits = 2 + data[0] % 15;
  const kernels::Levels levels{2.0F, 1 + data[1] % kernels::levels_of_bits(bits)};
  const std::size_t count = data[2] + 256U * (data[3] & 0x0fU);
  const std::span<const std::uint8_t> packed(data + 4, size - 4);
  std::vector<float> out(count), plain(count);
  const kernels::Simd wide = kernels::simd();
  const bool decodes = decode(packed, bits, levels, out);
  kernels::use_simd(kernels::Simd::scalar);
  const bool also = decode(packed, bits, levels, plain);
  kernels::use_simd(wide);
  if (decodes != also) __builtin_trap();
  if (decodes)
    for (std::size_t i = 0; i < count; ++i)
      if (out[i] != plain[i] || !(std::fabs(out[i]) <= 2.00001F)) __builtin_trap();
  std::vector<std::uint16_t> fields(count);
  try {
    kernels::unpack_fields(packed, bits, fields);
    std::vector<std::uint8_t> back(packed.size());
    kernels::pack_fields(fields, bits, back);
    if (!std::equal(back.begin(), back.end(), packed.begin())) __builtin_trap();
  } catch (const DataError&) {
    if (decodes) __builtin_trap();
  }
  return 0;
}
