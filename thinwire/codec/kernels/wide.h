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
#else
#define TW_WIDE 0
#endif
