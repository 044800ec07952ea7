// SPDX-License-Identifier: Apache-2.0
// Selection against sorting: the exact set, for every order of values and every number of ties.
#include "thinwire/codec/kernels/select.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/codec/kernels/values.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using test::expect_same;
using test::Kind;
using test::Unaligned;

void expect_selection(const Selection& got, const Selection& wanted) {
  ASSERT_EQ(got.indices, wanted.indices);
  expect_same(got.values, wanted.values);
}

void expect_top(std::span<const float> x, std::int64_t k) {
  SCOPED_TRACE(testing::Message() << k << " of " << x.size());
  Selection wanted, got;
  reference::select_largest(x, k, wanted);
  TopK top;
  top.select(x, k, got);
  expect_selection(got, wanted);
  top.select(x, k, got);  // with the room of the first
  expect_selection(got, wanted);
}

TEST(TopK, NaNIsLargestAndTheLowerIndexWinsATie) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{1, -2, 2, nan, -INFINITY, 2, 0};
  test::with_each_simd([&] {
    TopK top;
    Selection out;
    top.select(x, 3, out);
    EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{1, 3, 4}));
    top.select(x, 4, out);
    EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{1, 2, 3, 4}));
  });
}

TEST(TopK, EqualsSorting) {
  test::with_all_values([](const std::vector<float>& x) {
    Unaligned<float> input(x);
    const auto n = static_cast<std::int64_t>(x.size());
    for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 100, n / 2, n - 1, n, n + 1})
      expect_top(input.span(), k);
  });
}

// Long enough for a sample, and for the room to fill and be reduced again and again.
TEST(TopK, EqualsSortingForEveryOrderOfALongVector) {
  constexpr std::size_t kCount = 150'000;
  std::vector<std::vector<float>> inputs(7, test::values(kCount, Kind::normal, 3));
  std::sort(inputs[1].begin(), inputs[1].end(),
            [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  inputs[2] = inputs[1];
  std::reverse(inputs[2].begin(), inputs[2].end());
  std::fill(inputs[3].begin(), inputs[3].end(), 0.0F);  // all equal
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i % 5000 != 4321) inputs[4][i] = 0;                      // fewer than k are not zero
    inputs[5][i] = static_cast<float>(static_cast<int>(i % 7));  // a few large groups of ties
    if (i < kCount / 10) inputs[6][i] *= 1e6F;                   // all of the largest in one layer
  }
  test::with_each_simd([&] {
    for (const auto& input : inputs)
      for (const std::int64_t k : {1, 15, 1500, 30'000, 140'000}) expect_top(input, k);
  });
}

// Places that a sample looks at hold large values and no others do, so that its bound is too high.
TEST(TopK, ASampleThatMisleadsCostsNoExactness) {
  constexpr std::size_t kCount = 1 << 20, kStride = kCount / 1024;
  std::vector<float> x = test::values(kCount, Kind::normal, 4);
  for (std::size_t place = 0; place < 1024; ++place) {
    const std::size_t begin = place * kStride + place * 2654435761U % (kStride - 15);
    for (std::size_t i = begin; i < begin + 16; ++i) x[i] = 100 + static_cast<float>(i % 1000);
  }
  std::vector<float> memory = test::values(kCount, Kind::normal, 5);
  std::vector<float> sum = memory;
  for (std::size_t i = 0; i < kCount; ++i) sum[i] += x[i];
  Selection wanted, got;
  reference::select_largest(sum, 100'000, wanted);
  TopK top;
  top.accumulate(memory, x, 100'000, got);
  expect_selection(got, wanted);
  expect_same(memory, sum);
  std::fill(memory.begin(), memory.end(), -0.0F);  // so that the sum is x, zeros with their signs
  top.take(memory, sum, 100'000, got);
  expect_selection(got, wanted);
  zero_at(sum, wanted.indices);
  expect_same(memory, sum);
}

TEST(TopK, AccumulatesAndSelectsFromTheSum) {
  test::with_all_values([](const std::vector<float>& x) {
    std::vector<float> sum = test::values(x.size(), Kind::normal, 9);
    Unaligned<float> memory(sum);
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
    const auto k = static_cast<std::int64_t>(x.size() / 3);
    Selection wanted, got;
    TopK top;
    reference::select_largest(sum, k, wanted);
    top.accumulate(memory.span(), x, k, got);
    expect_same(memory.span(), sum);
    expect_selection(got, wanted);
  });
}

TEST(TopK, TakesWhatItSelects) {
  test::with_each_simd([] {
    for (const std::size_t count : {0u, 1u, 100u, 5000u, 150'000u})
      for (const Kind kind : {Kind::normal, Kind::any_bits, Kind::special})
        for (const std::size_t k : {std::size_t{0}, count / 100, count / 4, count}) {
          SCOPED_TRACE(testing::Message() << k << " of " << count);
          const auto x = test::values(count, kind, 3);
          std::vector<float> sum = test::values(count, Kind::normal, 4);
          Unaligned<float> memory(sum);
          for (std::size_t i = 0; i < count; ++i) sum[i] += x[i];
          Selection wanted, got;
          reference::select_largest(sum, static_cast<std::int64_t>(k), wanted);
          zero_at(sum, wanted.indices);
          TopK top;
          top.take(memory.span(), x, static_cast<std::int64_t>(k), got);
          expect_selection(got, wanted);
          expect_same(memory.span(), sum);
        }
  });
}

RC_GTEST_PROP(TopK, ConservesWhatIsSentAndWhatStays, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  std::vector<float> memory = test::values(random() % 3000, Kind::normal, seed);
  const std::vector<float> before = memory;
  const auto x = test::values(memory.size(), Kind::normal, seed + 1);
  TopK top;
  Selection sent;
  top.accumulate(memory, x, static_cast<std::int64_t>(random() % 500), sent);
  zero_at(memory, sent.indices);
  decode_sparse(sent.indices, sent.values, memory, Write::add);
  for (std::size_t i = 0; i < x.size(); ++i) RC_ASSERT(memory[i] == before[i] + x[i]);
}

TEST(Threshold, EqualsThePlainLoop) {
  test::with_all_values([](const std::vector<float>& x) {
    for (const float threshold : {0.0F, 1e-44F, 0.5F, 1.0F, INFINITY}) {
      Selection wanted, got;
      reference::select_at_least(x, threshold, wanted);
      Unaligned<float> input(x);
      select_at_least(input.span(), threshold, got);
      expect_selection(got, wanted);
      EXPECT_EQ(count_at_least(input.span(), threshold),
                static_cast<std::int64_t>(wanted.indices.size()));
      std::vector<float> sum = test::values(x.size(), Kind::normal, 2);
      Unaligned<float> memory(sum);
      for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
      reference::select_at_least(sum, threshold, wanted);
      accumulate_at_least(memory.span(), x, threshold, got);
      expect_same(memory.span(), sum);
      expect_selection(got, wanted);
    }
  });
}

TEST(Sparse, DecodesAndRefusesWhatDoesNotFit) {
  std::vector<float> out{1, 2, 3, 4};
  const std::vector<std::uint32_t> indices{0, 3}, beyond{0, 4};
  const std::vector<float> values{10, 20};
  decode_sparse(indices, values, out, Write::add);
  EXPECT_EQ(out, (std::vector<float>{11, 2, 3, 24}));
  EXPECT_THROW(decode_sparse(beyond, values, out, Write::set), DataError);
  EXPECT_EQ(out, (std::vector<float>{11, 2, 3, 24}));
  EXPECT_THROW(decode_sparse(indices, std::vector<float>(1), out, Write::set), DataError);
  decode_sparse(indices, values, out, Write::set);
  EXPECT_EQ(out, (std::vector<float>{10, 0, 0, 20}));
}

}  // namespace
}  // namespace thinwire::kernels
