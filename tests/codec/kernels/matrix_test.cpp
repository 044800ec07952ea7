// SPDX-License-Identifier: Apache-2.0
// The passes of a low-rank codec in vector code against the plain loops, bit for bit, and against
// the identities of the method.
#include "thinwire/codec/kernels/matrix.h"

#include <gtest/gtest.h>

#include "tests/codec/kernels/values.h"

namespace thinwire::kernels {
namespace {

using test::expect_same;
using test::Kind;
using test::Unaligned;
using Floats = std::vector<float>;

Floats normal(std::int64_t count, unsigned seed) {
  return test::values(static_cast<std::size_t>(count), Kind::normal, seed);
}

constexpr MatrixShape kShapes[] = {{0, 5},    {5, 0},    {1, 1},   {1, 37},  {37, 1},
                                   {3, 16},   {7, 33},   {8, 100}, {5, 511}, {9, 513},
                                   {6, 1030}, {2, 4096}, {3, 9000}};

template <class Check>
void with_all_shapes(Check check) {
  test::with_each_simd([&] {
    for (const MatrixShape shape : kShapes)
      for (const int rank : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.columns << ", rank " << rank);
        check(shape, rank);
      }
  });
}

TEST(Matrix, TimesEqualsThePlainLoops) {
  with_all_shapes([](MatrixShape shape, int rank) {
    const Floats q = normal(rank * shape.columns, 1), gradient = normal(shape.elements(), 2);
    Floats wanted_memory = normal(shape.elements(), 3);
    Unaligned<float> memory(wanted_memory), p(static_cast<std::size_t>(rank * shape.rows));
    Floats wanted(p.span().size());
    for (const bool accumulates : {true, false}) {
      const std::span<const float> added = accumulates ? gradient : std::span<const float>();
      reference::accumulate_times(wanted_memory, added, shape, rank, q, wanted);
      accumulate_times(memory.span(), added, shape, rank, q, p.span());
      expect_same(memory.span(), wanted_memory);
      expect_same(p.span(), wanted);
    }
  });
}

TEST(Matrix, TransposedTimesEqualsThePlainLoops) {
  with_all_shapes([](MatrixShape shape, int rank) {
    const Floats p = normal(rank * shape.rows, 1), gradient = normal(shape.elements(), 3);
    Floats wanted_memory = normal(shape.elements(), 2);
    Unaligned<float> m(wanted_memory), q(static_cast<std::size_t>(rank * shape.columns));
    Floats wanted(q.span().size());
    for (const bool accumulates : {true, false}) {
      const std::span<const float> added = accumulates ? gradient : std::span<const float>();
      reference::accumulate_transposed(wanted_memory, added, shape, rank, p, wanted);
      accumulate_transposed(m.span(), added, shape, rank, p, q.span());
      expect_same(m.span(), wanted_memory);
      expect_same(q.span(), wanted);
    }
    transposed_times(m.span(), shape, rank, p, q.span());
    expect_same(q.span(), wanted);
  });
}

TEST(Matrix, ProductsEqualThePlainLoops) {
  with_all_shapes([](MatrixShape shape, int rank) {
    const Floats p = normal(rank * shape.rows, 1), q = normal(rank * shape.columns, 2);
    const Floats m = normal(shape.elements(), 3), before = normal(shape.elements(), 4);
    for (const Write mode : {Write::set, Write::add})
      for (const int which : {1, 2, 3}) {
        Floats wanted_memory = which == 2 ? Floats() : m, wanted = which == 1 ? Floats() : before;
        Unaligned<float> memory(wanted_memory), out(wanted);
        reference::subtract_product(wanted_memory, shape, rank, p, q, wanted, mode);
        subtract_product(memory.span(), shape, rank, p, q, out.span(), mode);
        expect_same(memory.span(), wanted_memory);
        expect_same(out.span(), wanted);
      }
  });
}

// Large enough to be written past the caches, from an address that fits no register.
TEST(Matrix, LargeProductsEqualThePlainLoops) {
  const MatrixShape shape{1031, 1027};
  const Floats p = normal(3 * shape.rows, 1), q = normal(3 * shape.columns, 2);
  Floats wanted_memory = normal(shape.elements(), 3), wanted(wanted_memory.size());
  const Floats m = wanted_memory;
  reference::subtract_product(wanted_memory, shape, 3, p, q, wanted, Write::set);
  test::with_each_simd([&] {
    Unaligned<float> memory(m), out(m.size());
    subtract_product(memory.span(), shape, 3, p, q, out.span(), Write::set);
    expect_same(memory.span(), wanted_memory);
    expect_same(out.span(), wanted);
  });
}

TEST(Matrix, SpecialValuesGoTheSameWay) {
  test::with_each_simd([] {
    const MatrixShape shape{6, 70};
    const auto m = test::values(420, Kind::special, 1);
    const Floats q = normal(140, 2);
    Floats wanted_memory = m, memory = m, wanted(12), p(12);
    reference::accumulate_times(wanted_memory, m, shape, 2, q, wanted);
    accumulate_times(memory, m, shape, 2, q, p);
    expect_same(memory, wanted_memory);
    expect_same(p, wanted);
  });
}

// One step of the method on a matrix of rank 2: with two columns nothing stays behind.
TEST(Matrix, AMatrixOfTheRankIsSentWhole) {
  const MatrixShape shape{40, 300};
  const Floats u = normal(80, 1), v = normal(600, 2);
  test::with_each_simd([&] {
    Floats m(12'000), p(80), q = normal(600, 3), out(12'000);
    subtract_product({}, shape, 2, u, v, m, Write::set);
    const Floats whole = m;
    accumulate_times(m, {}, shape, 2, q, p);
    EXPECT_EQ(orthonormalise(p, shape.rows, 2), 0u);
    transposed_times(m, shape, 2, p, q);
    subtract_product(m, shape, 2, p, q, out, Write::set);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_NEAR(m[i], 0, 1e-4);
      ASSERT_NEAR(out[i], whole[i], 1e-4);
    }
  });
}

TEST(Matrix, MeanOfTwoRanksAsInTheBrief) {
  const MatrixShape shape{2, 2};
  Floats m1{2, 0, 0, 1}, m2{0, 2, 2, 1}, q{1, 0}, p1(2), p2(2);
  test::with_each_simd([&] {
    accumulate_times(m1, {}, shape, 1, q, p1);
    accumulate_times(m2, {}, shape, 1, q, p2);
    Floats p{(p1[0] + p2[0]) / 2, (p1[1] + p2[1]) / 2};
    EXPECT_EQ(p, (Floats{1, 1}));
    orthonormalise(p, 2, 1);
    Floats q1(2), q2(2), out(4), left = m1;
    transposed_times(m1, shape, 1, p, q1);
    transposed_times(m2, shape, 1, p, q2);
    const Floats mean{(q1[0] + q2[0]) / 2, (q1[1] + q2[1]) / 2};
    EXPECT_NEAR(mean[0], std::sqrt(2.0), 1e-6);
    EXPECT_NEAR(mean[1], std::sqrt(2.0), 1e-6);
    subtract_product(left, shape, 1, p, mean, out, Write::set);
    for (const float each : out) EXPECT_NEAR(each, 1, 1e-6);
    const Floats wanted{1, -1, -1, 0};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(left[i], wanted[i], 1e-6);
  });
}

TEST(Orthonormalise, ColumnsAreOrthogonalEvenWhenNearlyEqual) {
  constexpr std::int64_t kCount = 1000;
  Floats factor = normal(4 * kCount, 1);
  for (std::size_t i = 0; i < kCount; ++i)
    factor[kCount + i] = factor[i] + 1e-4F * factor[kCount + i];
  EXPECT_EQ(orthonormalise(factor, kCount, 4), 0u);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < kCount; ++i)
        dot += double{factor[a * kCount + i]} * double{factor[b * kCount + i]};
      EXPECT_NEAR(dot, a == b ? 1 : 0, 2e-6) << a << " " << b;
    }
}

TEST(Orthonormalise, ZeroAndRepeatedColumnsBecomeZeros) {
  Floats factor{0, 0, 0, 3, 0, 4, 6, 0, 8, 0, 2, 0};
  EXPECT_EQ(orthonormalise(factor, 3, 4), 0b0101u);
  const Floats wanted{0, 0, 0, 0.6F, 0, 0.8F, 0, 0, 0, 0, 1, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_FLOAT_EQ(factor[i], wanted[i]);
  Floats none(6, 0.0F);
  EXPECT_EQ(orthonormalise(none, 3, 2), 0b11u);
  EXPECT_EQ(none, Floats(6, 0.0F));
  Floats small{1e-30F, 0, 0};
  EXPECT_EQ(orthonormalise(small, 3, 1), 0u);
  EXPECT_FLOAT_EQ(small[0], 1);
  Floats wrong{NAN, 1, 2};
  EXPECT_EQ(orthonormalise(wrong, 3, 1), 0u);
  EXPECT_TRUE(std::isnan(wrong[0]));
}

}  // namespace
}  // namespace thinwire::kernels
