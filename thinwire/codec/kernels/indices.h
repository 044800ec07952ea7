// SPDX-License-Identifier: Apache-2.0
// Ascending indices in few bytes: k of them below n, packed as a bitmap or as Elias and Fano did
// it, whichever is smaller. Both sizes depend on (n, k) alone, so the size of a payload is known
// before anything is selected.
//
// Elias-Fano: the lowest `low` bits of every index stand one after the other, least significant
// first, filled up to a whole byte; then, for every index, as many zero bits as its upper part is
// greater than the one before, and a one. That is about 2 + log2(n / k) bits an index, half a bit
// more than log2 of the number of sets of k indices, over k.
#pragma once
#include <cstdint>
#include <span>

namespace thinwire::kernels {

struct IndexFormat {
  bool bitmap = false;
  int low = 0;  ///< bits of an index that are stored as they are
  std::int64_t low_bytes = 0;
  std::int64_t bytes = 0;  ///< of the whole
};

/// The smaller format, for 0 <= k <= n < 2^32.
IndexFormat index_format(std::int64_t n, std::int64_t k);

/// Bytes of k packed indices below n.
inline std::int64_t index_bytes(std::int64_t n, std::int64_t k) { return index_format(n, k).bytes; }

/// `packed` must have index_bytes(n, indices.size()) bytes; indices must ascend and be below n.
void pack_indices(std::span<const std::uint32_t> indices, std::int64_t n,
                  std::span<std::uint8_t> packed);

/// DataError unless `packed` is what pack_indices() makes of indices.size() ascending indices below
/// n; `indices` may then be partly written.
void unpack_indices(std::span<const std::uint8_t> packed, std::int64_t n,
                    std::span<std::uint32_t> indices);

}  // namespace thinwire::kernels
