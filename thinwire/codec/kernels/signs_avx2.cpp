// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/signs_avx2.h"

#include <cstring>

#include "thinwire/codec/kernels/wide.h"

#if TW_WIDE
namespace thinwire::kernels::avx2 {
namespace {

/// The lanes of double of lanes.h, eight a stream.
struct Sums {
  __m256d part[2 * kStreams];

  TW_AVX2_INLINE explicit Sums(const double* lanes) {
    for (std::size_t i = 0; i < 2 * kStreams; ++i) part[i] = _mm256_loadu_pd(lanes + 4 * i);
  }
  TW_AVX2_INLINE void store(double* lanes) const {
    for (std::size_t i = 0; i < 2 * kStreams; ++i) _mm256_storeu_pd(lanes + 4 * i, part[i]);
  }
  TW_AVX2_INLINE void add_abs(std::size_t stream, __m256 x) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
    __m256d* at = part + 2 * stream;
    at[0] = _mm256_add_pd(at[0], _mm256_cvtps_pd(_mm256_castps256_ps128(magnitude)));
    at[1] = _mm256_add_pd(at[1], _mm256_cvtps_pd(_mm256_extractf128_ps(magnitude, 1)));
  }
};

TW_AVX2_INLINE __m256 negative(__m256 x) {
  return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
}

/// All ones in the lanes whose bit of `byte_number` of `word` is set.
TW_AVX2_INLINE __m256 mask_of(__m256i word, int byte_number) {
  const __m256i bit =
      _mm256_slli_epi32(_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), 8 * byte_number);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, bit), bit));
}

struct PackSigns {
  const float* x;
  std::uint8_t* bits;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
    std::uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const int mask = _mm256_movemask_ps(negative(_mm256_loadu_ps(x + i + 8 * k)));
      word |= static_cast<std::uint32_t>(mask) << (8 * k);
    }
    std::memcpy(bits + i / 8, &word, sizeof word);
  }
};

struct SumAbs {
  const float* x;
  Sums sums;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    sums.add_abs(stream, _mm256_loadu_ps(x + i));
  }
};

struct AccumulateSumAbs {
  float* memory;
  const float* x;
  Sums sums;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(memory + i), _mm256_loadu_ps(x + i));
    _mm256_storeu_ps(memory + i, sum);
    sums.add_abs(stream, sum);
  }
};

struct PackResidual {
  float* x;
  std::uint8_t* bits;
  __m256 other, below;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
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
};

template <bool adds>
struct Decode {
  const std::uint8_t* bits;
  float* out;
  __m256 other, below;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
    std::uint32_t word;
    std::memcpy(&word, bits + i / 8, sizeof word);
    const __m256i words = _mm256_set1_epi32(static_cast<int>(word));
    for (int k = 0; k < 4; ++k) {
      float* at = out + i + 8 * k;
      __m256 value = _mm256_blendv_ps(other, below, mask_of(words, k));
      if constexpr (adds) value = _mm256_add_ps(_mm256_loadu_ps(at), value);
      _mm256_storeu_ps(at, value);
    }
  }
};

}  // namespace

TW_AVX2 std::size_t pack_signs(const float* x, std::size_t count, std::uint8_t* bits) {
  PackSigns each{x, bits};
  return walk<32>(count, each);
}

TW_AVX2 std::size_t sum_abs(const float* x, std::size_t count, double (&lanes)[kLanes]) {
  SumAbs each{x, Sums(lanes)};
  const std::size_t done = walk<8>(count, each);
  each.sums.store(lanes);
  return done;
}

TW_AVX2 std::size_t accumulate_sum_abs(float* memory, const float* x, std::size_t count,
                                       double (&lanes)[kLanes]) {
  AccumulateSumAbs each{memory, x, Sums(lanes)};
  const std::size_t done = walk<8>(count, each);
  each.sums.store(lanes);
  return done;
}

TW_AVX2 std::size_t pack_signs_residual(float* x, std::size_t count, SignValues values,
                                        std::uint8_t* bits) {
  PackResidual each{x, bits, _mm256_set1_ps(values.other), _mm256_set1_ps(values.negative)};
  return walk<32>(count, each);
}

TW_AVX2 std::size_t decode_signs(const std::uint8_t* bits, std::size_t count, SignValues values,
                                 float* out, Write mode) {
  const __m256 other = _mm256_set1_ps(values.other), below = _mm256_set1_ps(values.negative);
  if (mode == Write::add) {
    Decode<true> each{bits, out, other, below};
    return walk<32>(count, each);
  }
  Decode<false> each{bits, out, other, below};
  return walk<32>(count, each);
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
