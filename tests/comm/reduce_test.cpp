// SPDX-License-Identifier: Apache-2.0
// combine() on this processor against the plain loops: the same bits, whatever the values, lengths,
// alignment, number of ranks, and wherever the result goes.
#include "thinwire/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "thinwire/core/half.h"

namespace thinwire {
namespace {

using Part = std::vector<std::byte>;

/// Random bits: every float there is, subnormal, infinite and NaN ones included, but most of them
/// of middle size, so that sums round.
Part random_part(std::mt19937& random, DType dtype, std::int64_t count) {
  Part part(static_cast<std::size_t>(count * dtype_bytes(dtype)));
  for (auto& byte : part) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> middle(-4, 4);
  for (std::int64_t i = 0; i < count; ++i) {
    if (random() % 4 == 0) continue;
    std::byte* at = part.data() + i * dtype_bytes(dtype);
    const float value = middle(random);
    const double wide = value * 1.000000001;
    const std::uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == DType::f64) std::memcpy(at, &wide, sizeof wide);
    if (dtype == DType::f32) std::memcpy(at, &value, sizeof value);
    if (dtype == DType::f16 || dtype == DType::bf16) std::memcpy(at, &half, sizeof half);
  }
  return part;
}

bool is_nan(const std::byte* at, DType dtype) {
  double wide;
  float single;
  std::uint16_t half;
  if (dtype == DType::f64) return std::memcpy(&wide, at, sizeof wide), std::isnan(wide);
  if (dtype == DType::f32) return std::memcpy(&single, at, sizeof single), std::isnan(single);
  std::memcpy(&half, at, sizeof half);
  return std::isnan(dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half));
}

void expect_same(const std::byte* got, const std::byte* wanted, std::int64_t count, DType dtype) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* a = got + i * dtype_bytes(dtype);
    const std::byte* b = wanted + i * dtype_bytes(dtype);
    if (std::memcmp(a, b, bytes) == 0 || (is_nan(a, dtype) && is_nan(b, dtype))) continue;
    FAIL() << "element " << i << " of " << count << " differs";
  }
}

class CombineOf : public testing::TestWithParam<std::tuple<DType, Combine>> {};

TEST_P(CombineOf, EqualsThePlainLoopsBitForBit) {
  const auto [dtype, op] = GetParam();
  const auto bytes = dtype_bytes(dtype);
  std::mt19937 random(7);
  for (std::size_t ranks = 1; ranks <= 5; ++ranks) {
    for (const std::int64_t count : {1, 2, 7, 8, 15, 31, 32, 33, 64, 100, 1024, 3001}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count << " elements");
      std::vector<Part> parts;
      for (std::size_t r = 0; r < ranks; ++r)
        parts.push_back(random_part(random, dtype, count + 1));
      for (const std::int64_t shift : {0, 1}) {  // one element off: no alignment to rely on
        std::vector<const void*> from;
        for (const Part& part : parts) from.push_back(part.data() + shift * bytes);
        Part wanted(parts[0].size()), got(parts[0].size());
        combine_plainly(wanted.data(), from, count, dtype, op);
        combine(got.data() + shift * bytes, from, count, dtype, op);
        expect_same(got.data() + shift * bytes, wanted.data(), count, dtype);
        for (std::size_t r = 0; r < ranks; ++r) {  // in place of each part
          Part kept = parts[r];
          combine(parts[r].data() + shift * bytes, from, count, dtype, op);
          expect_same(parts[r].data() + shift * bytes, wanted.data(), count, dtype);
          parts[r] = std::move(kept);
          from[r] = parts[r].data() + shift * bytes;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, CombineOf,
                         ::testing::Combine(::testing::Values(DType::f64, DType::f32, DType::f16,
                                                              DType::bf16),
                                            testing::Values(Combine::sum, Combine::mean)));

TEST(Half, EveryF16SurvivesTheWayToF32AndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = f16_to_f32(half);
    const std::uint16_t back = f32_to_f16(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(back))) << bits;
    } else {
      ASSERT_EQ(back, half);
    }
  }
}

}  // namespace
}  // namespace thinwire
