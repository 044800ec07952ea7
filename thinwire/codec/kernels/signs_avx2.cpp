// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/signs_avx2.h"

#include <cstring>

#include "thinwire/codec/kernels/wide.h"

#if TW_WIDE
namespace thinwire::kernels::avx2 {
namespace {

constexpr std::size_t kBlock = 32;  // elements a round: one 32-bit word of signs

/// Sixteen lanes of double in four registers, in the order of the elements.
struct Sums {
  __m256d part[4];
};

TW_AVX2_INLINE Sums load_lanes(const double* lanes) {
  return {_mm256_loadu_pd(lanes), _mm256_loadu_pd(lanes + 4), _mm256_loadu_pd(lanes + 8),
          _mm256_loadu_pd(lanes + 12)};
}

TW_AVX2_INLINE void store_lanes(const Sums& sums, double* lanes) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lanes + 4 * i, sums.part[i]);
}

TW_AVX2_INLINE void add_abs(Sums& sums, int at, __m256 x) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
  sums.part[at] = _mm256_add_pd(sums.part[at], _mm256_cvtps_pd(_mm256_castps256_ps128(magnitude)));
  sums.part[at + 1] =
      _mm256_add_pd(sums.part[at + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(magnitude, 1)));
}

TW_AVX2_INLINE __m256 negative(__m256 x) {
  return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
}

/// All ones in the lanes whose bit of `byte_number` of `word` is set.
TW_AVX2_INLINE __m256 mask_of(__m256i word, int byte_number) {
  const __m256i bit =
      _mm256_slli_epi32(_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), 8 * byte_number);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, bit), bit));
}

}  // namespace

TW_AVX2 std::size_t pack_signs(const float* x, std::size_t count, std::uint8_t* bits) {
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    std::uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const int mask = _mm256_movemask_ps(negative(_mm256_loadu_ps(x + i + 8 * k)));
      word |= static_cast<std::uint32_t>(mask) << (8 * k);
    }
    std::memcpy(bits + i / 8, &word, sizeof word);
  }
  return i;
}

TW_AVX2 std::size_t sum_abs(const float* x, std::size_t count, double (&lanes)[kLanes]) {
  Sums sums = load_lanes(lanes);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    add_abs(sums, 0, _mm256_loadu_ps(x + i));
    add_abs(sums, 2, _mm256_loadu_ps(x + i + 8));
  }
  store_lanes(sums, lanes);
  return i;
}

TW_AVX2 std::size_t accumulate_sum_abs(float* memory, const float* x, std::size_t count,
                                       double (&lanes)[kLanes]) {
  Sums sums = load_lanes(lanes);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 a = _mm256_add_ps(_mm256_loadu_ps(memory + i), _mm256_loadu_ps(x + i));
    const __m256 b = _mm256_add_ps(_mm256_loadu_ps(memory + i + 8), _mm256_loadu_ps(x + i + 8));
    _mm256_storeu_ps(memory + i, a);
    _mm256_storeu_ps(memory + i + 8, b);
    add_abs(sums, 0, a);
    add_abs(sums, 2, b);
  }
  store_lanes(sums, lanes);
  return i;
}

TW_AVX2 std::size_t pack_signs_residual(float* x, std::size_t count, SignValues values,
                                        std::uint8_t* bits) {
  const __m256 other = _mm256_set1_ps(values.other), below = _mm256_set1_ps(values.negative);
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    std::uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      float* at = x + i + 8 * k;
      const __m256 value = _mm256_loadu_ps(at);
      const __m256 mask = negative(value);
      word |= static_cast<std::uint32_t>(_mm256_movemask_ps(mask)) << (8 * k);
      _mm256_storeu_ps(at, _mm256_sub_ps(value, _mm256_blendv_ps(other, below, mask)));
    }
    std::memcpy(bits + i / 8, &word, sizeof word);
  }
  return i;
}

TW_AVX2 std::size_t decode_signs(const std::uint8_t* bits, std::size_t count, SignValues values,
                                 float* out, Write mode) {
  const __m256 other = _mm256_set1_ps(values.other), below = _mm256_set1_ps(values.negative);
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    std::uint32_t word;
    std::memcpy(&word, bits + i / 8, sizeof word);
    const __m256i words = _mm256_set1_epi32(static_cast<int>(word));
    for (int k = 0; k < 4; ++k) {
      float* at = out + i + 8 * k;
      __m256 value = _mm256_blendv_ps(other, below, mask_of(words, k));
      if (mode == Write::add) value = _mm256_add_ps(_mm256_loadu_ps(at), value);
      _mm256_storeu_ps(at, value);
    }
  }
  return i;
}

}  // namespace thinwire::kernels::avx2
#else
namespace thinwire::kernels::avx2 {
std::size_t pack_signs(const float*, std::size_t, std::uint8_t*) { return 0; }
std::size_t sum_abs(const float*, std::size_t, double (&)[kLanes]) { return 0; }
std::size_t accumulate_sum_abs(float*, const float*, std::size_t, double (&)[kLanes]) { return 0; }
std::size_t pack_signs_residual(float*, std::size_t, SignValues, std::uint8_t*) { return 0; }
std::size_t decode_signs(const std::uint8_t*, std::size_t, SignValues, float*, Write) { return 0; }
}  // namespace thinwire::kernels::avx2
#endif
