// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: functions compiled for wider vector instructions than the rest of the
// program.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define TW_WIDE 1
#define TW_AVX2_SET "avx2,f16c,bmi,bmi2,lzcnt,popcnt"
#define TW_AVX512_SET "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,bmi,bmi2,lzcnt,popcnt"
#define TW_AVX2 __attribute__((target(TW_AVX2_SET)))
#define TW_AVX512 __attribute__((target(TW_AVX512_SET)))
// What is not inlined would be called once a register.
#define TW_AVX2_INLINE __attribute__((target(TW_AVX2_SET), always_inline)) inline
#define TW_AVX512_INLINE __attribute__((target(TW_AVX512_SET), always_inline)) inline

#include <algorithm>

#include "thinwire/codec/kernels/lanes.h"

namespace thinwire::kernels {

/// Calls each(i, stream) for i = 0, kStep, ... in the order of lanes.h, as long as kStep elements
/// are left, and returns how many elements those were. kStep divides kPage; kSide pages are side by
/// side.
template <std::size_t kStep, std::size_t kSide = kStreams, class Each>
TW_AVX2_INLINE std::size_t walk(std::size_t count, Each& each) {
  std::size_t base = 0;
  for (; base + kSide * kPage <= count; base += kSide * kPage)
    for (std::size_t j = 0; j < kPage; j += kStep)
#pragma GCC unroll 4
      for (std::size_t s = 0; s < kSide; ++s) each(base + s * kPage + j, s);
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kSide; ++s) {
    const std::size_t end = std::min(count, base + (s + 1) * kPage);
    for (std::size_t i = base + s * kPage; i + kStep <= end; i += kStep) each(i, s);
  }
  return count - count % kStep;
}

/// The same for AVX-512; a function cannot be compiled for both.
template <std::size_t kStep, class Each>
TW_AVX512_INLINE std::size_t walk_512(std::size_t count, Each& each) {
  std::size_t base = 0;
  for (; base + kStreams * kPage <= count; base += kStreams * kPage)
    for (std::size_t j = 0; j < kPage; j += kStep)
#pragma GCC unroll 4
      for (std::size_t s = 0; s < kStreams; ++s) each(base + s * kPage + j, s);
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::size_t end = std::min(count, base + (s + 1) * kPage);
    for (std::size_t i = base + s * kPage; i + kStep <= end; i += kStep) each(i, s);
  }
  return count - count % kStep;
}

}  // namespace thinwire::kernels
#else
#define TW_WIDE 0
#endif
