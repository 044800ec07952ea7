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
      if constexpr (accumulates)
        if (job.takes) job.memory[i] = 0;
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

enum class Act { reads, adds, takes };

/// What each stream finds; mostly few of them.
struct Found {
  std::uint32_t indices[kStreams][kPage + 16];
  float values[kStreams][kPage + 16];
};

template <Act act>
struct Collect8 {
  const Collect& job;
  Found& found;
  __m256i above;
  std::size_t counts[kStreams] = {};
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    __m256 value = _mm256_loadu_ps(job.x + i);
    if constexpr (act != Act::reads) value = _mm256_add_ps(_mm256_loadu_ps(job.memory + i), value);
    const __m256i bits =
        _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(kMagnitude));
    const __m256 mask = _mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, above));
    if constexpr (act == Act::adds) _mm256_storeu_ps(job.memory + i, value);
    if constexpr (act == Act::takes)
      _mm256_storeu_ps(job.memory + i, _mm256_andnot_ps(mask, value));
    if (const int which = _mm256_movemask_ps(mask); which != 0)
      append(i, stream, value, static_cast<unsigned>(which));
  }

  /// The numbers of the lanes that `which` has set are moved to the front, as bytes, and the lanes
  /// after them; what is written beyond the found ones is written over.
  TW_AVX2_INLINE void append(std::size_t i, std::size_t stream, __m256 value, unsigned which) {
    const std::uint64_t bytes = _pdep_u64(which, 0x0101010101010101ULL) * 0xff;
    const std::uint64_t lanes = _pext_u64(0x0706050403020100ULL, bytes);
    const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(lanes)));
    const __m256i first = _mm256_set1_epi32(static_cast<int>(job.base + i));
    auto* indices = reinterpret_cast<__m256i*>(found.indices[stream] + counts[stream]);
    _mm256_storeu_si256(indices, _mm256_add_epi32(first, order));
    _mm256_storeu_ps(found.values[stream] + counts[stream], _mm256_permutevar8x32_ps(value, order));
    counts[stream] += static_cast<std::size_t>(__builtin_popcount(which));
  }
};

template <Act act>
struct Collect16 {
  const Collect& job;
  Found& found;
  __m512i above, lane;
  std::size_t counts[kStreams] = {};
  TW_AVX512_INLINE void operator()(std::size_t i, std::size_t stream) {
    __m512 value = _mm512_loadu_ps(job.x + i);
    if constexpr (act != Act::reads) value = _mm512_add_ps(_mm512_loadu_ps(job.memory + i), value);
    const __m512i bits =
        _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(kMagnitude));
    const __mmask16 mask = _mm512_cmpgt_epi32_mask(bits, above);
    if constexpr (act == Act::adds) _mm512_storeu_ps(job.memory + i, value);
    if constexpr (act == Act::takes)
      _mm512_storeu_ps(job.memory + i, _mm512_maskz_mov_ps(_knot_mask16(mask), value));
    // Without a branch, which would be mistaken at every tenth element that is sent; what is
    // written beyond the found ones is written over.
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int>(job.base + i)));
    _mm512_storeu_si512(found.indices[stream] + counts[stream],
                        _mm512_maskz_compress_epi32(mask, index));
    _mm512_storeu_ps(found.values[stream] + counts[stream], _mm512_maskz_compress_ps(mask, value));
    counts[stream] += static_cast<std::size_t>(__builtin_popcount(mask));
  }
};

/// Puts what the streams found behind one another; copies in whole steps of sixteen.
TW_AVX2_INLINE std::size_t join(const Collect& job, const Found& found,
                                const std::size_t (&counts)[kStreams]) {
  std::size_t all = 0;
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (std::size_t i = 0; i < counts[s]; i += 16) {
      __builtin_memcpy(job.indices + all + i, found.indices[s] + i, 64);
      __builtin_memcpy(job.values + all + i, found.values[s] + i, 64);
    }
    all += counts[s];
  }
  return all;
}

template <Act act>
TW_AVX2 std::size_t collect_8(const Collect& job) {
  Found found;
  Collect8<act> each{job, found, _mm256_set1_epi32(job.above)};
  const std::size_t done = walk<8>(job.count, each);
  return collect_tail<act != Act::reads>(job, done, join(job, found, each.counts));
}

template <Act act>
TW_AVX512 std::size_t collect_16(const Collect& job) {
  Found found;
  Collect16<act> each{job, found, _mm512_set1_epi32(job.above),
                      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
  const std::size_t done = walk_512<16>(job.count, each);
  return collect_tail<act != Act::reads>(job, done, join(job, found, each.counts));
}

struct CountAbove {
  const float* x;
  __m256i above;
  __m256i counts[kStreams] = {};
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    const __m256i bits = _mm256_and_si256(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)), _mm256_set1_epi32(kMagnitude));
    counts[stream] = _mm256_sub_epi32(counts[stream], _mm256_cmpgt_epi32(bits, above));
  }
};

}  // namespace

std::size_t collect_avx2(const Collect& job) {
  if (job.memory == nullptr) return collect_8<Act::reads>(job);
  return job.takes ? collect_8<Act::takes>(job) : collect_8<Act::adds>(job);
}

std::size_t collect_avx512(const Collect& job) {
  if (job.memory == nullptr) return collect_16<Act::reads>(job);
  return job.takes ? collect_16<Act::takes>(job) : collect_16<Act::adds>(job);
}

TW_AVX2 std::size_t count_above_avx2(const float* x, std::size_t count, std::int32_t above) {
  CountAbove each{x, _mm256_set1_epi32(above)};
  std::size_t i = walk<8>(count, each), found = 0;
  for (; i < count; ++i) found += (std::bit_cast<std::int32_t>(x[i]) & kMagnitude) > above;
  std::uint32_t counts[kStreams][8];
  __builtin_memcpy(counts, each.counts, sizeof counts);
  for (const auto& stream : counts)
    for (const std::uint32_t one : stream) found += one;
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
