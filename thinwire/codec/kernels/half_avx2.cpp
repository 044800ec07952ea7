// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/half_avx2.h"

#include "thinwire/codec/kernels/wide.h"

#if TW_WIDE
namespace thinwire::kernels::avx2 {
namespace {

struct F16 {
  TW_AVX2_INLINE static __m128i narrow(__m256 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
  }
  TW_AVX2_INLINE static __m256 widen(__m128i bits) { return _mm256_cvtph_ps(bits); }
};

struct Bf16 {
  TW_AVX2_INLINE static __m128i narrow(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));  // stays a NaN
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), nan, is_nan);
    return _mm256_castsi256_si128(
        _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08));
  }
  TW_AVX2_INLINE static __m256 widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
};

/// `streams`: the output, at an address that is a multiple of kLine, goes past the caches.
template <class Format, bool streams>
struct Encode {
  const float* x;
  std::uint16_t* out;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
    for (std::size_t k = 0; k < 32; k += 16) {
      const __m256i bits = _mm256_set_m128i(Format::narrow(_mm256_loadu_ps(x + i + k + 8)),
                                            Format::narrow(_mm256_loadu_ps(x + i + k)));
      auto* to = reinterpret_cast<__m256i*>(out + i + k);
      if constexpr (streams)
        _mm256_stream_si256(to, bits);
      else
        _mm256_storeu_si256(to, bits);
    }
  }
};

template <class Format>
struct EncodeResidual {
  float* x;
  std::uint16_t* out;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
    const __m256 value = _mm256_loadu_ps(x + i);
    const __m128i bits = Format::narrow(value);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), bits);
    _mm256_storeu_ps(x + i, _mm256_sub_ps(value, Format::widen(bits)));
  }
};

template <class Format, bool adds>
struct Decode {
  const std::uint16_t* in;
  float* out;
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t) const {
    __m256 value = Format::widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    if constexpr (adds) value = _mm256_add_ps(_mm256_loadu_ps(out + i), value);
    _mm256_storeu_ps(out + i, value);
  }
};

template <class Format>
TW_AVX2 std::size_t encode(const float* x, std::size_t count, std::uint16_t* out) {
  // Written past the caches, an output that would not stay in most of them is not read first.
  if (count >= kLarge && reinterpret_cast<std::uintptr_t>(out) % kLine == 0) {
    const Encode<Format, true> each{x, out};
    const std::size_t done = walk<32, 2>(count, each);  // two pages fit the buffers of such writes
    _mm_sfence();
    return done;
  }
  const Encode<Format, false> each{x, out};
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) each(i, 0);
  return i;
}

template <class Format>
TW_AVX2 std::size_t encode_residual(float* x, std::size_t count, std::uint16_t* out) {
  EncodeResidual<Format> each{x, out};
  return walk<8>(count, each);
}

template <class Format>
TW_AVX2 std::size_t decode(const std::uint16_t* in, std::size_t count, float* out, Write mode) {
  if (mode == Write::add) {
    Decode<Format, true> each{in, out};
    return walk<8>(count, each);
  }
  Decode<Format, false> each{in, out};
  return walk<8>(count, each);
}

}  // namespace

std::size_t encode_half(Half format, const float* x, std::size_t count, std::uint16_t* out) {
  return format == Half::f16 ? encode<F16>(x, count, out) : encode<Bf16>(x, count, out);
}

std::size_t encode_half_residual(Half format, float* x, std::size_t count, std::uint16_t* out) {
  return format == Half::f16 ? encode_residual<F16>(x, count, out)
                             : encode_residual<Bf16>(x, count, out);
}

std::size_t decode_half(Half format, const std::uint16_t* in, std::size_t count, float* out,
                        Write mode) {
  return format == Half::f16 ? decode<F16>(in, count, out, mode)
                             : decode<Bf16>(in, count, out, mode);
}

}  // namespace thinwire::kernels::avx2
#else
namespace thinwire::kernels::avx2 {
std::size_t encode_half(Half, const float*, std::size_t, std::uint16_t*) { return 0; }
std::size_t encode_half_residual(Half, float*, std::size_t, std::uint16_t*) { return 0; }
std::size_t decode_half(Half, const std::uint16_t*, std::size_t, float*, Write) { return 0; }
}  // namespace thinwire::kernels::avx2
#endif
