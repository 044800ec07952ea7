// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/matrix_wide.h"

#include "thinwire/codec/kernels/wide.h"

#if TW_WIDE
namespace thinwire::kernels {
namespace {

constexpr int kNothing = 0, kSets = 1, kPast = 2, kAdds = 3;  // what happens to the output
constexpr std::int64_t kAhead = 512;                          // floats

inline float fold_floats(float* lanes) {
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace

namespace avx2 {
namespace {
constexpr int kWidth = 8;
}
#define TW_LOOP TW_AVX2
#define TW_LOOP_INLINE TW_AVX2_INLINE
#define TW_LOOP_STREAM(to, value) _mm256_stream_ps(to, value)
#include "thinwire/codec/kernels/matrix_loops.inc"
#undef TW_LOOP
#undef TW_LOOP_INLINE
#undef TW_LOOP_STREAM
}  // namespace avx2

namespace avx512 {
namespace {
constexpr int kWidth = 16;
}
#define TW_LOOP TW_AVX512
#define TW_LOOP_INLINE TW_AVX512_INLINE
#define TW_LOOP_STREAM(to, value) _mm512_stream_ps(to, value)
#include "thinwire/codec/kernels/matrix_loops.inc"
#undef TW_LOOP
#undef TW_LOOP_INLINE
#undef TW_LOOP_STREAM
}  // namespace avx512

}  // namespace thinwire::kernels
#else
namespace thinwire::kernels {
namespace avx2 {
void times(const MatrixJob&) {}
void transposed_times(const MatrixJob&) {}
void subtract_product(const MatrixJob&) {}
}  // namespace avx2
namespace avx512 {
void times(const MatrixJob&) {}
void transposed_times(const MatrixJob&) {}
void subtract_product(const MatrixJob&) {}
}  // namespace avx512
}  // namespace thinwire::kernels
#endif
