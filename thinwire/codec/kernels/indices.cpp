// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/indices.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

std::int64_t bytes_of(std::int64_t bits) { return (bits + 7) / 8; }

[[noreturn]] void refuse(const char* rule, std::int64_t n, std::size_t k) {
  throw DataError(fmt::format("indices: {}, in {} packed indices below {}", rule, k, n));
}

/// Calls found(i) for every set bit i, in order, until it returns false.
template <class Found>
void each_set_bit(std::span<const std::uint8_t> bytes, Found found) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    for (std::size_t b = 0; b < std::min<std::size_t>(8, bytes.size() - at); ++b)
      word |= std::uint64_t{bytes[at + b]} << (8 * b);
    for (; word != 0; word &= word - 1)
      if (!found(8 * at + static_cast<std::size_t>(std::countr_zero(word)))) return;
  }
}

void set_bit(std::uint8_t* bytes, std::uint64_t at) {
  bytes[at / 8] = static_cast<std::uint8_t>(bytes[at / 8] | 1U << (at % 8));
}

/// The lowest `bits` bits of each index, one after the other.
void pack_low(std::span<const std::uint32_t> indices, int bits, std::uint8_t* to) {
  std::uint64_t word = 0;
  int held = 0;
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (const std::uint32_t index : indices) {
    word |= (index & mask) << held;
    held += bits;
    if (held < 32) continue;
    for (int b = 0; b < 4; ++b) to[b] = static_cast<std::uint8_t>(word >> (8 * b));
    to += 4;
    word >>= 32;
    held -= 32;
  }
  for (; held > 0; held -= 8, word >>= 8) *to++ = static_cast<std::uint8_t>(word);
}

/// Reads them back; what fills the last byte must be 0.
bool unpack_low(std::span<const std::uint8_t> from, int bits, std::span<std::uint32_t> out) {
  std::uint64_t word = 0;
  int held = 0;
  std::size_t at = 0;
  for (std::uint32_t& low : out) {
    for (; held < bits; held += 8) word |= std::uint64_t{from[at++]} << held;
    low = static_cast<std::uint32_t>(word & ((std::uint64_t{1} << bits) - 1));
    word >>= bits;
    held -= bits;
  }
  return word == 0;
}

void unpack_bitmap(std::span<const std::uint8_t> packed, std::int64_t n,
                   std::span<std::uint32_t> indices) {
  std::size_t found = 0;
  bool fits = true;
  each_set_bit(packed, [&](std::size_t bit) {
    fits = found < indices.size() && static_cast<std::int64_t>(bit) < n;
    if (fits) indices[found++] = static_cast<std::uint32_t>(bit);
    return fits;
  });
  if (!fits || found != indices.size()) refuse("wrong bits in a bitmap", n, indices.size());
}

}  // namespace

IndexFormat index_format(std::int64_t n, std::int64_t k) {
  TW_ASSERT(k, >=, std::int64_t{0});
  TW_ASSERT(k, <=, n);
  TW_ASSERT(n, <, std::int64_t{1} << 32);
  if (k == 0) return {};
  IndexFormat best{.bitmap = true, .bytes = bytes_of(n)};
  for (int low = 0; low < 32; ++low) {
    const std::int64_t low_bytes = bytes_of(k * low);
    const std::int64_t bytes = low_bytes + bytes_of(k + ((n - 1) >> low));
    if (bytes < best.bytes)
      best = {.bitmap = false, .low = low, .low_bytes = low_bytes, .bytes = bytes};
  }
  return best;
}

void pack_indices(std::span<const std::uint32_t> indices, std::int64_t n,
                  std::span<std::uint8_t> packed) {
  const IndexFormat format = index_format(n, static_cast<std::int64_t>(indices.size()));
  TW_ASSERT(packed.size(), ==, static_cast<std::size_t>(format.bytes));
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  if (format.bitmap) {
    for (const std::uint32_t index : indices) set_bit(packed.data(), index);
    return;
  }
  pack_low(indices, format.low, packed.data());
  std::uint8_t* upper = packed.data() + format.low_bytes;
  for (std::size_t i = 0; i < indices.size(); ++i)
    set_bit(upper, (std::uint64_t{indices[i]} >> format.low) + i);
}

void unpack_indices(std::span<const std::uint8_t> packed, std::int64_t n,
                    std::span<std::uint32_t> indices) {
  const std::size_t k = indices.size();
  if (static_cast<std::int64_t>(k) > n) refuse("more indices than elements", n, k);
  const IndexFormat format = index_format(n, static_cast<std::int64_t>(k));
  if (packed.size() != static_cast<std::size_t>(format.bytes))
    throw DataError(fmt::format("indices: {} packed indices below {} have {} bytes, got {}", k, n,
                                format.bytes, packed.size()));
  if (format.bitmap) return unpack_bitmap(packed, n, indices);
  const auto low_bytes = static_cast<std::size_t>(format.low_bytes);
  if (!unpack_low(packed.first(low_bytes), format.low, indices))
    refuse("bits past the last lower part", n, k);
  std::size_t found = 0;
  std::int64_t before = -1;
  const char* wrong = nullptr;
  each_set_bit(packed.subspan(low_bytes), [&](std::size_t bit) {
    if (found == k) {
      wrong = "more indices than stated";
      return false;
    }
    const auto upper = static_cast<std::uint64_t>(bit - found);
    const auto index = static_cast<std::int64_t>(upper << format.low | indices[found]);
    if (index <= before || index >= n) {
      wrong = "an index that does not ascend or fit";
      return false;
    }
    indices[found++] = static_cast<std::uint32_t>(index);
    before = index;
    return true;
  });
  if (wrong != nullptr) refuse(wrong, n, k);
  if (found != k) refuse("fewer indices than stated", n, k);
}

}  // namespace thinwire::kernels
