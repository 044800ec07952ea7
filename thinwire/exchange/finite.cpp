// SPDX-License-Identifier: Apache-2.0
// A value is not finite where all bits of its exponent are set, so one mask and one comparison of
// integers tell. Vectors of 16 bytes are what every build has; four of them at a time keep up with
// the memory.
#include "thinwire/exchange/finite.h"

#include <ATen/Parallel.h>
#include <ATen/ops/copy.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace thinwire {
namespace {

template <class Bits>
struct Lanes {
  typedef Bits Vector __attribute__((vector_size(16)));
  static constexpr std::int64_t kCount = 16 / sizeof(Bits);
};

template <bool kCopy, class Bits>
inline void look_at(char* to, const char* from, std::int64_t at,
                    const typename Lanes<Bits>::Vector& exponent,
                    typename Lanes<Bits>::Vector& hits) {
  using Vector = typename Lanes<Bits>::Vector;
  Vector value;
  std::memcpy(&value, from + at, 16);
  if constexpr (kCopy) std::memcpy(to + at, &value, 16);
  hits -= (Vector)((value & exponent) == exponent);  // a true lane is -1
}

/// Counts in `count` values from `from` on; copies them to `to` on the way if kCopy.
template <bool kCopy, class Bits>
std::int64_t sweep(char* to, const char* from, std::int64_t count, Bits exponent) {
  using Vector = typename Lanes<Bits>::Vector;
  constexpr std::int64_t kLanes = Lanes<Bits>::kCount, kStride = 4 * kLanes;
  constexpr std::int64_t kRounds = 4096;  // a lane counts up to one a round: no overflow in 16 bits
  const Vector mask = Vector{} + exponent;
  std::int64_t found = 0, i = 0;
  while (i + kStride <= count) {
    const std::int64_t end = i + std::min((count - i) / kStride, kRounds) * kStride;
    Vector a{}, b{}, c{}, d{};  // written out: an array of them would live in memory
    for (; i < end; i += kStride) {
      const std::int64_t at = i * static_cast<std::int64_t>(sizeof(Bits));
      look_at<kCopy, Bits>(to, from, at, mask, a);
      look_at<kCopy, Bits>(to, from, at + 16, mask, b);
      look_at<kCopy, Bits>(to, from, at + 32, mask, c);
      look_at<kCopy, Bits>(to, from, at + 48, mask, d);
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      found += static_cast<std::int64_t>(a[lane] + b[lane] + c[lane] + d[lane]);
  }
  for (; i < count; ++i) {
    const std::int64_t at = i * static_cast<std::int64_t>(sizeof(Bits));
    Bits value;
    std::memcpy(&value, from + at, sizeof value);
    if constexpr (kCopy) std::memcpy(to + at, &value, sizeof value);
    found += (value & exponent) == exponent;
  }
  return found;
}

/// On all threads that torch uses, as its own copy would be.
template <bool kCopy, class Bits>
std::int64_t sweep_all(void* to, const void* from, std::int64_t count, Bits exponent) {
  constexpr std::int64_t kGrain = 1 << 17;
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    const auto at = begin * static_cast<std::int64_t>(sizeof(Bits));
    return sweep<kCopy>(kCopy ? static_cast<char*>(to) + at : nullptr,
                        static_cast<const char*>(from) + at, end - begin, exponent);
  };
  if (count <= kGrain || at::get_num_threads() == 1) return part(0, count);
  std::atomic<std::int64_t> found{0};
  at::parallel_for(0, count, kGrain,
                   [&](std::int64_t begin, std::int64_t end) { found += part(begin, end); });
  return found;
}

template <bool kCopy>
std::int64_t sweep_type(at::ScalarType type, void* to, const void* from, std::int64_t count) {
  using std::uint16_t, std::uint32_t, std::uint64_t;
  switch (type) {
    case at::kHalf:
      return sweep_all<kCopy>(to, from, count, uint16_t{0x7c00});
    case at::kBFloat16:
      return sweep_all<kCopy>(to, from, count, uint16_t{0x7f80});
    case at::kFloat:
      return sweep_all<kCopy>(to, from, count, uint32_t{0x7f800000});
    case at::kDouble:
      return sweep_all<kCopy>(to, from, count, uint64_t{0x7ff0000000000000});
    case at::kComplexFloat:
      return sweep_all<kCopy>(to, from, 2 * count, uint32_t{0x7f800000});
    case at::kComplexDouble:
      return sweep_all<kCopy>(to, from, 2 * count, uint64_t{0x7ff0000000000000});
    default:
      return -1;
  }
}

}  // namespace

std::int64_t count_not_finite(const at::Tensor& values) {
  const at::Tensor dense = values.is_non_overlapping_and_dense() ? values : values.contiguous();
  return std::max<std::int64_t>(
      0, sweep_type<false>(dense.scalar_type(), nullptr, dense.const_data_ptr(), dense.numel()));
}

std::int64_t copy_counting_not_finite(const at::Tensor& to, const at::Tensor& from) {
  const bool same_memory_order = to.scalar_type() == from.scalar_type() &&
                                 to.sizes() == from.sizes() && to.strides() == from.strides() &&
                                 to.is_non_overlapping_and_dense() && !from.is_conj() &&
                                 !from.is_neg();
  if (same_memory_order)
    if (const std::int64_t found = sweep_type<true>(to.scalar_type(), to.mutable_data_ptr(),
                                                    from.const_data_ptr(), to.numel());
        found >= 0)
      return found;
  to.copy_(from);
  return count_not_finite(to);
}

}  // namespace thinwire
