// SPDX-License-Identifier: Apache-2.0
// Which elements travel. Magnitudes are compared as |x| is ordered, a NaN above all numbers (it
// travels and is seen, and does not stay behind in a memory); of equal magnitudes the lower index
// comes first. So the selection is one exact set, whatever the vector instructions. Indices are
// ascending. Lengths up to 2^32 - 1.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/codec/write.h"

namespace thinwire::kernels {

/// Indices in ascending order and the elements at them. Kept between steps, it allocates once.
struct Selection {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

/// The exact k elements of largest magnitude, in one pass over memory: elements above a bound are
/// collected; a sample gives the first bound, and whenever the room for candidates is full, the
/// k-th of them gives a higher one. A bound that was too high costs a second pass. Holds the room,
/// so keep one for each bucket; not to be used by two threads at once.
class TopK {
 public:
  void select(std::span<const float> x, std::int64_t k, Selection& out);

  /// memory += x and selects from the new memory, which stays whole: see zero_at().
  void accumulate(std::span<float> memory, std::span<const float> x, std::int64_t k,
                  Selection& out);

  /// accumulate() and zero_at() together, cheaper than one after the other: only the candidates
  /// that are not among the k are written again.
  void take(std::span<float> memory, std::span<const float> x, std::int64_t k, Selection& out);

 private:
  struct Candidates {
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    std::size_t count = 0;
  };
  void run(float* memory, const float* x, std::size_t n, std::size_t k, Selection& out);
  void stream(float* memory, const float* x, std::size_t n, std::size_t k, std::int32_t above);
  void give_back(std::span<const std::uint32_t> indices, std::span<const float> values);
  std::int32_t sampled_bound(const float* memory, const float* x, std::size_t n, std::size_t k);
  std::int32_t keep_largest(std::size_t k);
  std::int32_t smallest_of_largest(std::size_t k, std::size_t& ties);

  Candidates candidates_;
  std::vector<std::int32_t> scratch_;
  Candidates rejected_;
  float* taken_from_ = nullptr;  ///< while take() runs
  std::int32_t low_ = 0;         ///< no candidate's magnitude is less
};

/// All elements with |x| >= threshold, and all NaNs. threshold >= 0.
void select_at_least(std::span<const float> x, float threshold, Selection& out);

/// memory += x and selects from the new memory, in one pass.
void accumulate_at_least(std::span<float> memory, std::span<const float> x, float threshold,
                         Selection& out);

/// How many select_at_least() would select.
std::int64_t count_at_least(std::span<const float> x, float threshold);

/// x = 0 where it was sent.
void zero_at(std::span<float> x, std::span<const std::uint32_t> indices);

/// The decoder: `set` writes zeros elsewhere. DataError for an index beyond the end, before
/// anything is written, and for different numbers of indices and values.
void decode_sparse(std::span<const std::uint32_t> indices, std::span<const float> values,
                   std::span<float> out, Write mode);

/// The same by sorting, and in plain loops.
namespace reference {
void select_largest(std::span<const float> x, std::int64_t k, Selection& out);
void select_at_least(std::span<const float> x, float threshold, Selection& out);
}  // namespace reference

}  // namespace thinwire::kernels
