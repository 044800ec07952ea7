// SPDX-License-Identifier: Apache-2.0
// Inputs for the kernels' tests: every kind of float, lengths around the blocks of vector code, no
// alignment to rely on; and the kernels run with each set of vector instructions that is here.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "thinwire/codec/kernels/simd.h"

namespace thinwire::kernels::test {

inline constexpr std::size_t kLengths[] = {0,  1,  2,  7,  8,   9,   15,  16,   17,   31,   32,  33,
                                           63, 64, 65, 95, 127, 128, 129, 1000, 1025, 4096, 9000};

enum class Kind { normal, any_bits, special };

/// normal: mostly of middle size, some exact zeros of both signs; any_bits: NaNs, infinite and
/// subnormal values among them; special: those and little else.
inline std::vector<float> values(std::size_t count, Kind kind, unsigned seed) {
  using Limits = std::numeric_limits<float>;
  static constexpr float kSpecial[] = {0.0F,
                                       -0.0F,
                                       Limits::infinity(),
                                       -Limits::infinity(),
                                       Limits::quiet_NaN(),
                                       -Limits::quiet_NaN(),
                                       Limits::denorm_min(),
                                       -Limits::denorm_min(),
                                       Limits::max(),
                                       Limits::lowest(),
                                       Limits::min(),
                                       65504.0F,
                                       65520.0F,
                                       1.0F,
                                       -1.0F};
  std::mt19937 random(seed + static_cast<unsigned>(count) * 31U);
  std::normal_distribution<float> middle;
  std::vector<float> out(count);
  for (float& x : out) {
    if (kind == Kind::normal) x = random() % 16 == 0 ? kSpecial[random() % 2] : middle(random);
    if (kind == Kind::any_bits) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (kind == Kind::special) x = kSpecial[random() % std::size(kSpecial)];
  }
  return out;
}

/// Room for `count` elements at an address that is a multiple of their size and of no more.
template <class T>
class Unaligned {
 public:
  explicit Unaligned(std::size_t count) : all_(count + 2), count_(count) {}
  explicit Unaligned(std::span<const T> from) : Unaligned(from.size()) {
    std::copy(from.begin(), from.end(), span().begin());
  }
  std::span<T> span() { return {all_.data() + 1, count_}; }

 private:
  std::vector<T> all_;
  std::size_t count_;
};

/// Runs `check` with each set of vector instructions of this processor.
template <class Check>
void with_each_simd(Check check) {
  const Simd before = simd();
  for (const Simd each : {Simd::scalar, Simd::avx2, Simd::avx512}) {
    if (each > widest_simd()) continue;
    use_simd(each);
    SCOPED_TRACE(to_string(each));
    check();
  }
  use_simd(before);
}

/// Equal bits, or both no number.
inline void expect_same(std::span<const float> got, std::span<const float> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
        << "element " << i << " of " << got.size() << ": " << got[i] << " and " << wanted[i];
  }
}

/// Runs `check(count, values)` for all lengths and kinds, with each set of vector instructions.
template <class Check>
void with_all_values(Check check) {
  with_each_simd([&] {
    for (const Kind kind : {Kind::normal, Kind::any_bits, Kind::special})
      for (const std::size_t count : kLengths) {
        SCOPED_TRACE(testing::Message() << count << " elements of kind " << static_cast<int>(kind));
        check(values(count, kind, 1));
      }
  });
}

}  // namespace thinwire::kernels::test
