// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/select_wide.h"

#include <bit>

#include "thinwire/codec/kernels/wide.h"

namespace thinwire::kernels {
namespace {

constexpr std::int32_t kMagnitude = 0x7fffffff;

template <bool accumulates>
std::size_t collect_tail(const Collect& job, std::size_t from, std::size_t found) {
  for (std::size_t i = from; i < job.count; ++i) {
    float value = job.x[i];
    if constexpr (accumulates) value = job.memory[i] += value;
    if ((std::bit_cast<std::int32_t>(value) & kMagnitude) > job.above) {
      job.indices[found] = job.base + static_cast<std::uint32_t>(i);
      job.values[found] = value;
      ++found;
    }
  }
  return found;
}

}  // namespace

std::size_t collect_plain(const Collect& job) {
  return job.memory == nullptr ? collect_tail<false>(job, 0, 0) : collect_tail<true>(job, 0, 0);
}

#if TW_WIDE
namespace {

/// Eight elements; in the accumulating form they are written back.
template <bool accumulates>
TW_AVX2_INLINE unsigned above_of_8(const Collect& job, std::size_t i, __m256i above) {
  __m256 value = _mm256_loadu_ps(job.x + i);
  if constexpr (accumulates) {
    value = _mm256_add_ps(_mm256_loadu_ps(job.memory + i), value);
    _mm256_storeu_ps(job.memory + i, value);
  }
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(kMagnitude));
  return static_cast<unsigned>(
      _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, above))));
}

template <bool accumulates>
TW_AVX2 std::size_t collect_8(const Collect& job) {
  const __m256i above = _mm256_set1_epi32(job.above);
  const float* from = accumulates ? job.memory : job.x;
  std::size_t i = 0, found = 0;
  for (; i + 32 <= job.count; i += 32) {
    std::uint32_t mask = 0;
    for (unsigned k = 0; k < 4; ++k)
      mask |= above_of_8<accumulates>(job, i + 8 * k, above) << (8 * k);
    for (; mask != 0; mask &= mask - 1) {
      const std::size_t at = i + static_cast<std::size_t>(__builtin_ctz(mask));
      job.indices[found] = job.base + static_cast<std::uint32_t>(at);
      job.values[found] = from[at];
      ++found;
    }
  }
  return collect_tail<accumulates>(job, i, found);
}

template <bool accumulates>
TW_AVX512 std::size_t collect_16(const Collect& job) {
  const __m512i above = _mm512_set1_epi32(job.above), magnitude = _mm512_set1_epi32(kMagnitude);
  __m512i index =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(job.base)),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  std::size_t i = 0, found = 0;
  for (; i + 16 <= job.count; i += 16) {
    __m512 value = _mm512_loadu_ps(job.x + i);
    if constexpr (accumulates) {
      value = _mm512_add_ps(_mm512_loadu_ps(job.memory + i), value);
      _mm512_storeu_ps(job.memory + i, value);
    }
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
    const __mmask16 mask = _mm512_cmpgt_epi32_mask(bits, above);
    // Without a branch, which would be mistaken at every tenth element that is sent; what is
    // written beyond the found ones is written over.
    _mm512_storeu_si512(job.indices + found, _mm512_maskz_compress_epi32(mask, index));
    _mm512_storeu_ps(job.values + found, _mm512_maskz_compress_ps(mask, value));
    found += static_cast<std::size_t>(__builtin_popcount(mask));
    index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
  }
  return collect_tail<accumulates>(job, i, found);
}

}  // namespace

std::size_t collect_avx2(const Collect& job) {
  return job.memory == nullptr ? collect_8<false>(job) : collect_8<true>(job);
}

std::size_t collect_avx512(const Collect& job) {
  return job.memory == nullptr ? collect_16<false>(job) : collect_16<true>(job);
}

TW_AVX2 std::size_t count_above_avx2(const float* x, std::size_t count, std::int32_t above) {
  const __m256i bound = _mm256_set1_epi32(above);
  const Collect job{.x = x, .count = count};
  std::size_t i = 0, found = 0;
  for (; i + 32 <= count; i += 32) {
    std::uint32_t mask = 0;
    for (unsigned k = 0; k < 4; ++k) mask |= above_of_8<false>(job, i + 8 * k, bound) << (8 * k);
    found += static_cast<std::size_t>(__builtin_popcount(mask));
  }
  for (; i < count; ++i) found += (std::bit_cast<std::int32_t>(x[i]) & kMagnitude) > above;
  return found;
}
#else
std::size_t collect_avx2(const Collect& job) { return collect_plain(job); }
std::size_t collect_avx512(const Collect& job) { return collect_plain(job); }
std::size_t count_above_avx2(const float* x, std::size_t count, std::int32_t above) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i)
    found += (std::bit_cast<std::int32_t>(x[i]) & kMagnitude) > above;
  return found;
}
#endif

}  // namespace thinwire::kernels
