// SPDX-License-Identifier: Apache-2.0
// Ascending keys in few bytes, for key sets of any size: differences, each in the narrowest of four
// widths that are chosen for the set. indices.h has a size that depends on (n, k) alone; this one
// is smaller where keys cluster, and its size depends on them.
// Layout: four bytes, the widths, ascending; two bits a key, which width its difference has; the
// differences d = key - previous - 1 (the first: key), each in its width, least significant bit
// first; both filled up to whole bytes.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire::kernels {

using KeyWidths = std::array<int, 4>;  ///< ascending, in [0, 32]
/// How many differences need 0, 1, ... 32 bits.
using KeyHistogram = std::array<std::int64_t, 33>;

KeyHistogram key_histogram(std::span<const std::uint32_t> keys);
/// Bits of the differences and their flags; the last width must hold the largest.
std::int64_t key_bits(const KeyHistogram& histogram, const KeyWidths& widths);
/// The four that make it least.
KeyWidths best_key_widths(const KeyHistogram& histogram);

/// Appends to `out`. Keys must ascend strictly.
void pack_keys(std::span<const std::uint32_t> keys, std::vector<std::uint8_t>& out);
/// Reads keys.size() keys below n and returns how many bytes they took. DataError for bytes that no
/// set of them has; `keys` may then be partly written.
std::size_t unpack_keys(std::span<const std::uint8_t> bytes, std::int64_t n,
                        std::span<std::uint32_t> keys);

}  // namespace thinwire::kernels
