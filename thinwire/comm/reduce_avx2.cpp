// SPDX-License-Identifier: Apache-2.0
// Sums of floats with the vector instructions of AVX2 and F16C, where the processor has them; the
// rest of the program is built without. The same operations in the same order as the plain loops of
// reduce.cpp, so the same bits.
#include "thinwire/comm/reduce_avx2.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

#include "thinwire/core/half.h"

#define TW_VECTOR __attribute__((target("avx2,f16c")))
// What is not inlined would be called once a register.
#define TW_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline

namespace thinwire {
namespace {

/// Each format: how one register of sums is loaded, added, divided and stored, and the same for one
/// element at the end of the memory.
struct F32 {
  using Stored = float;
  using Sum = float;
  using Lanes = __m256;
  static constexpr std::int64_t kLanes = 8;
  TW_INLINE static Lanes load(const float* from) { return _mm256_loadu_ps(from); }
  TW_INLINE static Lanes add(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
  TW_INLINE static Lanes divide(Lanes a, float by) { return _mm256_div_ps(a, _mm256_set1_ps(by)); }
  TW_INLINE static void store(float* to, Lanes value) { _mm256_storeu_ps(to, value); }
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};

struct F64 {
  using Stored = double;
  using Sum = double;
  using Lanes = __m256d;
  static constexpr std::int64_t kLanes = 4;
  TW_INLINE static Lanes load(const double* from) { return _mm256_loadu_pd(from); }
  TW_INLINE static Lanes add(Lanes a, Lanes b) { return _mm256_add_pd(a, b); }
  TW_INLINE static Lanes divide(Lanes a, double by) { return _mm256_div_pd(a, _mm256_set1_pd(by)); }
  TW_INLINE static void store(double* to, Lanes value) { _mm256_storeu_pd(to, value); }
  static double widen(double value) { return value; }
  static double narrow(double value) { return value; }
};

struct F16 : F32 {
  using Stored = std::uint16_t;
  TW_INLINE static Lanes load(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  TW_INLINE static void store(std::uint16_t* to, Lanes value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  static float widen(std::uint16_t value) { return f16_to_f32(value); }
  static std::uint16_t narrow(float value) { return f32_to_f16(value); }
};

struct Bf16 : F32 {
  using Stored = std::uint16_t;
  TW_INLINE static Lanes load(const std::uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  TW_INLINE static void store(std::uint16_t* to, Lanes value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));  // stays a NaN
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), nan, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
  static float widen(std::uint16_t value) { return bf16_to_f32(value); }
  static std::uint16_t narrow(float value) { return f32_to_bf16(value); }
};

/// All parts of a few registers are read before they are written, so `out` may be one of the parts.
template <class Format>
TW_VECTOR void sum(void* out, std::span<const void* const> parts, std::int64_t count, bool mean) {
  using Stored = typename Format::Stored;
  constexpr int kRegisters = 4;
  constexpr std::int64_t kStride = kRegisters * Format::kLanes;
  const auto at = [&](std::size_t r) { return static_cast<const Stored*>(parts[r]); };
  auto* to = static_cast<Stored*>(out);
  const auto ranks = static_cast<typename Format::Sum>(parts.size());
  std::int64_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    typename Format::Lanes acc[kRegisters];
    for (int k = 0; k < kRegisters; ++k) acc[k] = Format::load(at(0) + i + k * Format::kLanes);
    for (std::size_t r = 1; r < parts.size(); ++r)
      for (int k = 0; k < kRegisters; ++k)
        acc[k] = Format::add(acc[k], Format::load(at(r) + i + k * Format::kLanes));
    for (int k = 0; mean && k < kRegisters; ++k) acc[k] = Format::divide(acc[k], ranks);
    for (int k = 0; k < kRegisters; ++k) Format::store(to + i + k * Format::kLanes, acc[k]);
  }
  for (; i < count; ++i) {
    typename Format::Sum acc = Format::widen(at(0)[i]);
    for (std::size_t r = 1; r < parts.size(); ++r) acc += Format::widen(at(r)[i]);
    if (mean) acc /= ranks;
    to[i] = Format::narrow(acc);
  }
}

// Not every compiler that can make F16C's instructions knows it by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool here() {
  static const bool found = __builtin_cpu_supports("avx2") && has_f16c();
  return found;
}

}  // namespace

bool sum_avx2(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
              bool mean) {
  if (!here()) return false;
  switch (dtype) {
    case DType::f64:
      sum<F64>(out, parts, count, mean);
      return true;
    case DType::f32:
      sum<F32>(out, parts, count, mean);
      return true;
    case DType::f16:
      sum<F16>(out, parts, count, mean);
      return true;
    case DType::bf16:
      sum<Bf16>(out, parts, count, mean);
      return true;
    default:
      return false;
  }
}

}  // namespace thinwire

#else

namespace thinwire {
bool sum_avx2(void*, std::span<const void* const>, std::int64_t, DType, bool) { return false; }
}  // namespace thinwire

#endif
