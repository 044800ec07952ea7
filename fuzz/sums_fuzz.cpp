// SPDX-License-Identifier: Apache-2.0
// Words of fields that ranks have added: any are decoded, to fields that fit, the same in the
// written-out loops and in the plain ones.
#include <algorithm>
#include <cstring>
#include <vector>

#include "thinwire/codec/kernels/sums.h"

// The width and two bytes of the number of fields come first.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire::kernels;
  if (size < 3) return 0;
  const int bits = 2 + data[0] % 31;
  const std::size_t most = data[1] + 256U * (data[2] & 0x0fU);
  const std::size_t each = static_cast<std::size_t>(sums_per_word(bits));
  const std::size_t count = std::min(most, (size - 3) / 8 * each);
  std::vector<std::int64_t> words(
      static_cast<std::size_t>(sum_words(static_cast<std::int64_t>(count), bits)));
  if (!words.empty()) std::memcpy(words.data(), data + 3, 8 * words.size());
  std::vector<std::int32_t> fields(count), plain(count);
  unpack_sums(words, bits, fields);
  reference::unpack_sums(words, bits, plain);
  if (fields != plain) __builtin_trap();
  for (const std::int64_t field : fields)
    if (field < -(std::int64_t{1} << (bits - 1)) || field >= std::int64_t{1} << (bits - 1))
      __builtin_trap();
  return 0;
}
