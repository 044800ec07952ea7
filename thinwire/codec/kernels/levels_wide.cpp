// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/levels_wide.h"

#include <cstring>

#include "thinwire/codec/kernels/wide.h"

#if TW_WIDE
namespace thinwire::kernels {
namespace {

constexpr std::uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;  // Philox's

/// Philox of four blocks at once: a lane of 64 bits holds one word, in its lower half.
struct Words4 {
  __m256i word[4];
};

TW_AVX2_INLINE void philox_round(Words4& c, __m256i key0, __m256i key1) {
  const __m256i a = _mm256_mul_epu32(c.word[0], _mm256_set1_epi64x(kMultiply0));
  const __m256i b = _mm256_mul_epu32(c.word[2], _mm256_set1_epi64x(kMultiply1));
  c.word[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), c.word[1]), key0);
  c.word[1] = b;
  c.word[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), c.word[3]), key1);
  c.word[3] = a;
}

TW_AVX2_INLINE Words4 first_words(const Rounding& rounding, std::uint64_t block) {
  const __m256i index = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(block)),
                                         _mm256_setr_epi64x(0, 1, 2, 3));
  return {{index, _mm256_srli_epi64(index, 32), _mm256_set1_epi64x(rounding.stream[0]),
           _mm256_set1_epi64x(rounding.stream[1])}};
}

struct Scaling8 {
  __m256 factor, low, high;
  TW_AVX2_INLINE explicit Scaling8(const Rounding& rounding)
      : factor(_mm256_set1_ps(rounding.factor)),
        low(_mm256_set1_ps(-rounding.limit)),
        high(_mm256_set1_ps(rounding.limit)) {}
};

/// Eight codes, as 32-bit integers.
TW_AVX2_INLINE __m256i round_8(const Scaling8& scaling, __m256 x, __m256i word) {
  __m256 steps = _mm256_mul_ps(x, scaling.factor);
  steps = _mm256_min_ps(steps, scaling.high);  // the limit where it is no number
  steps = _mm256_max_ps(steps, scaling.low);
  // The lower and the upper half of each 32-bit word, as two integers side by side.
  const __m256i halves = _mm256_shuffle_epi8(
      word, _mm256_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 0, 1, -1, -1,
                             2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1));
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(steps), halves), 16);
}

TW_AVX2_INLINE void leave_rest(const Rounding& rounding, __m256 x, __m256i code, float* rest) {
  const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(rounding.unit));
  _mm256_storeu_ps(rest, _mm256_sub_ps(x, value));
}

struct Words8 {
  __m512i word[4];
};

TW_AVX512_INLINE void philox_round(Words8& c, __m512i key0, __m512i key1) {
  constexpr int kXorOfThree = 0x96;
  const __m512i a = _mm512_mul_epu32(c.word[0], _mm512_set1_epi64(kMultiply0));
  const __m512i b = _mm512_mul_epu32(c.word[2], _mm512_set1_epi64(kMultiply1));
  c.word[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(b, 32), c.word[1], key0, kXorOfThree);
  c.word[1] = b;
  c.word[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(a, 32), c.word[3], key1, kXorOfThree);
  c.word[3] = a;
}

TW_AVX512_INLINE Words8 first_words_512(const Rounding& rounding, std::uint64_t block) {
  const __m512i index = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(block)),
                                         _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  return {{index, _mm512_srli_epi64(index, 32), _mm512_set1_epi64(rounding.stream[0]),
           _mm512_set1_epi64(rounding.stream[1])}};
}

struct Scaling16 {
  __m512 factor, low, high;
  TW_AVX512_INLINE explicit Scaling16(const Rounding& rounding)
      : factor(_mm512_set1_ps(rounding.factor)),
        low(_mm512_set1_ps(-rounding.limit)),
        high(_mm512_set1_ps(rounding.limit)) {}
};

TW_AVX512_INLINE __m512i round_16(const Scaling16& scaling, __m512 x, __m512i word) {
  __m512 steps = _mm512_mul_ps(x, scaling.factor);
  steps = _mm512_min_ps(steps, scaling.high);
  steps = _mm512_max_ps(steps, scaling.low);
  const __m512i halves =
      _mm512_shuffle_epi8(word, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8,
                                                                     9, -1, -1, 10, 11, -1, -1)));
  return _mm512_srai_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(steps), halves), 16);
}

template <bool rests>
TW_AVX2 void round_4(const Rounding& rounding, const float* x, std::size_t groups,
                     std::uint64_t group, std::int16_t* codes, float* rest) {
  const Scaling8 scaling(rounding);
  for (std::size_t g = 0; g < groups; ++g, x += kGroup, codes += kGroup) {
    Words4 low = first_words(rounding, 8 * (group + g));
    Words4 high = first_words(rounding, 8 * (group + g) + 4);
#pragma GCC unroll 10
    for (int round = 0; round < kRounds; ++round) {
      const __m256i key0 = _mm256_set1_epi64x(static_cast<long long>(rounding.keys[round][0]));
      const __m256i key1 = _mm256_set1_epi64x(static_cast<long long>(rounding.keys[round][1]));
      philox_round(low, key0, key1);
      philox_round(high, key0, key1);
    }
    for (int w = 0; w < 4; ++w) {
      __builtin_prefetch(x + kPage + 16 * w, rests);
      const __m256 first = _mm256_loadu_ps(x + 16 * w), second = _mm256_loadu_ps(x + 16 * w + 8);
      const __m256i a = round_8(scaling, first, low.word[w]);
      const __m256i b = round_8(scaling, second, high.word[w]);
      const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 16 * w), both);
      if constexpr (rests) {
        leave_rest(rounding, first, a, rest + kGroup * g + 16 * w);
        leave_rest(rounding, second, b, rest + kGroup * g + 16 * w + 8);
      }
    }
  }
}

template <bool rests>
TW_AVX512 void round_8_blocks(const Rounding& rounding, const float* x, std::size_t groups,
                              std::uint64_t group, std::int16_t* codes, float* rest) {
  const Scaling16 scaling(rounding);
  const __m512 unit = _mm512_set1_ps(rounding.unit);
  // The page after this one is asked for meanwhile: rounding takes as long as reading.
  for (std::size_t g = 0; g < groups; ++g, x += kGroup, codes += kGroup) {
    Words8 words = first_words_512(rounding, 8 * (group + g));
#pragma GCC unroll 10
    for (int round = 0; round < kRounds; ++round)
      philox_round(words, _mm512_set1_epi64(static_cast<long long>(rounding.keys[round][0])),
                   _mm512_set1_epi64(static_cast<long long>(rounding.keys[round][1])));
    for (int w = 0; w < 4; ++w) {
      const __m512 value = _mm512_loadu_ps(x + 16 * w);
      __builtin_prefetch(x + kPage + 16 * w, rests);
      const __m512i code = round_16(scaling, value, words.word[w]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 16 * w), _mm512_cvtepi32_epi16(code));
      if constexpr (rests) {
        const __m512 decoded = _mm512_mul_ps(_mm512_cvtepi32_ps(code), unit);
        _mm512_storeu_ps(rest + kGroup * g + 16 * w, _mm512_sub_ps(value, decoded));
      }
    }
  }
}

/// The lowest `bits` bits of each byte.
std::uint64_t field_mask(int bits) { return ((1ULL << bits) - 1) * 0x0101010101010101ULL; }

}  // namespace

void round_groups_avx2(const Rounding& rounding, const float* x, std::size_t groups,
                       std::uint64_t group, std::int16_t* codes, float* rest) {
  if (rest == nullptr) return round_4<false>(rounding, x, groups, group, codes, rest);
  round_4<true>(rounding, x, groups, group, codes, rest);
}

void round_groups_avx512(const Rounding& rounding, const float* x, std::size_t groups,
                         std::uint64_t group, std::int16_t* codes, float* rest) {
  if (rest == nullptr) return round_8_blocks<false>(rounding, x, groups, group, codes, rest);
  round_8_blocks<true>(rounding, x, groups, group, codes, rest);
}

/// Fields of four bits: two become one number of 32 bits by a product with (1, 16).
TW_AVX2_INLINE std::size_t pack_in_fours(const std::int16_t* codes, std::size_t count, int offset,
                                         std::uint8_t* packed) {
  const __m256i shift = _mm256_set1_epi16(static_cast<short>(offset));
  const __m256i weights = _mm256_set1_epi32(16 << 16 | 1);
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32, packed += 16) {
    const auto* at = reinterpret_cast<const __m256i*>(codes + i);
    const __m256i a = _mm256_add_epi16(_mm256_loadu_si256(at), shift);
    const __m256i b = _mm256_add_epi16(_mm256_loadu_si256(at + 1), shift);
    const __m256i pairs =
        _mm256_packus_epi32(_mm256_madd_epi16(a, weights), _mm256_madd_epi16(b, weights));
    const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(packed),
        _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }
  return i;
}

TW_AVX2 std::size_t pack_avx2(const std::int16_t* codes, std::size_t count, int offset, int bits,
                              std::uint8_t* packed) {
  if (bits == 4) return pack_in_fours(codes, count, offset, packed);
  const __m128i shift = _mm_set1_epi16(static_cast<short>(offset));
  const std::uint64_t mask = field_mask(bits);
  std::size_t i = 0;
  // Eight bytes are written, of which `bits` are meant.
  for (; (count - i) * static_cast<std::size_t>(bits) >= 64; i += 8, packed += bits) {
    const __m128i code = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
    const __m128i fields = _mm_packus_epi16(_mm_add_epi16(code, shift), _mm_setzero_si128());
    const std::uint64_t word =
        _pext_u64(static_cast<std::uint64_t>(_mm_cvtsi128_si64(fields)), mask);
    std::memcpy(packed, &word, sizeof word);
  }
  return i;
}

TW_AVX2 std::size_t decode_avx2(const std::uint8_t* packed, int bits, int offset, float unit,
                                float* out, std::size_t count, Write mode, unsigned& largest) {
  const std::uint64_t mask = field_mask(bits);
  const __m256i shift = _mm256_set1_epi32(offset);
  const __m256 units = _mm256_set1_ps(unit);
  __m128i most = _mm_setzero_si128();
  std::size_t i = 0;
  // Eight bytes are read, of which `bits` are meant.
  for (; (count - i) * static_cast<std::size_t>(bits) >= 64; i += 8, packed += bits) {
    std::uint64_t word;
    std::memcpy(&word, packed, sizeof word);
    const __m128i fields = _mm_cvtsi64_si128(static_cast<long long>(_pdep_u64(word, mask)));
    most = _mm_max_epu8(most, fields);
    const __m256i code = _mm256_sub_epi32(_mm256_cvtepu8_epi32(fields), shift);
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(code), units);
    if (mode == Write::add) value = _mm256_add_ps(_mm256_loadu_ps(out + i), value);
    _mm256_storeu_ps(out + i, value);
  }
  std::uint8_t each[16];
  std::memcpy(each, &most, sizeof most);
  for (const unsigned field : each) largest = field > largest ? field : largest;
  return i;
}

namespace {

template <bool accumulates>
struct MaxAbs {
  float* memory;
  const float* x;
  __m256i most[kStreams];
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    __m256 value = _mm256_loadu_ps(x + i);
    if constexpr (accumulates) {
      value = _mm256_add_ps(_mm256_loadu_ps(memory + i), value);
      _mm256_storeu_ps(memory + i, value);
    }
    const __m256i bits =
        _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fffffff));
    most[stream] = _mm256_max_epi32(most[stream], bits);
  }
};

template <bool accumulates>
TW_AVX2 std::size_t max_abs_of(float* memory, const float* x, std::size_t count,
                               std::int32_t& largest) {
  const __m256i start = _mm256_set1_epi32(largest);
  MaxAbs<accumulates> each{memory, x, {start, start, start, start}};
  const std::size_t done = walk<8>(count, each);
  std::int32_t all[kStreams][8];
  std::memcpy(all, each.most, sizeof all);
  for (const auto& stream : all)
    for (const std::int32_t one : stream) largest = std::max(largest, one);
  return done;
}

struct Squares {
  const float* x;
  __m256d sums[2 * kStreams];
  TW_AVX2_INLINE void operator()(std::size_t i, std::size_t stream) {
    for (std::size_t k = 0; k < 2; ++k) {
      const __m256d value = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * k));
      __m256d& sum = sums[2 * stream + k];
      sum = _mm256_add_pd(sum, _mm256_mul_pd(value, value));
    }
  }
};

}  // namespace

std::size_t max_abs_avx2(float* memory, const float* x, std::size_t count, std::int32_t& largest) {
  return memory == nullptr ? max_abs_of<false>(memory, x, count, largest)
                           : max_abs_of<true>(memory, x, count, largest);
}

TW_AVX2 std::size_t squares_avx2(const float* x, std::size_t count, double (&lanes)[kLanes]) {
  Squares each{x, {}};
  for (std::size_t j = 0; j < 2 * kStreams; ++j) each.sums[j] = _mm256_loadu_pd(lanes + 4 * j);
  const std::size_t done = walk<8>(count, each);
  for (std::size_t j = 0; j < 2 * kStreams; ++j) _mm256_storeu_pd(lanes + 4 * j, each.sums[j]);
  return done;
}

}  // namespace thinwire::kernels
#else
namespace thinwire::kernels {
void round_groups_avx2(const Rounding&, const float*, std::size_t, std::uint64_t, std::int16_t*,
                       float*) {}
void round_groups_avx512(const Rounding&, const float*, std::size_t, std::uint64_t, std::int16_t*,
                         float*) {}
std::size_t pack_avx2(const std::int16_t*, std::size_t, int, int, std::uint8_t*) { return 0; }
std::size_t decode_avx2(const std::uint8_t*, int, int, float, float*, std::size_t, Write,
                        unsigned&) {
  return 0;
}
std::size_t max_abs_avx2(float*, const float*, std::size_t, std::int32_t&) { return 0; }
std::size_t squares_avx2(const float*, std::size_t, double (&)[kLanes]) { return 0; }
}  // namespace thinwire::kernels
#endif
