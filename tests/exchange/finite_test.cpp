// SPDX-License-Identifier: Apache-2.0
// The copy that counts, against torch's own copy and isfinite.
#include "thinwire/exchange/finite.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

namespace thinwire::test {
namespace {

std::int64_t reference(const at::Tensor& x) {
  const auto real = x.is_complex() ? at::view_as_real(x.resolve_conj()) : x;
  return real.numel() - at::isfinite(real).sum().item<std::int64_t>();
}

/// Bad values at the ends, in the middle, and at steps that are no divisor of a vector.
at::Tensor sample(std::int64_t count, at::ScalarType type) {
  auto x = at::linspace(-3, 1e4, count, at::kDouble).to(type);
  const double bad[] = {std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN()};
  int k = 0;
  for (std::int64_t i = 0; i < count; i += 1 + count / 7) x[i].fill_(bad[k++ % 3]);
  if (count > 0) x[count - 1].fill_(bad[k % 3]);
  return x;
}

void expect_same(const at::Tensor& from, at::Tensor to) {
  const auto count = copy_counting_not_finite(to, from);
  EXPECT_EQ(count, reference(from)) << from.sizes() << " " << from.dtype();
  EXPECT_TRUE(at::equal(to.resolve_conj().nan_to_num(), from.resolve_conj().nan_to_num()));
  EXPECT_EQ(count_not_finite(from), count);
}

}  // namespace

TEST(Finite, AllTypesAndSizes) {
  for (const auto type :
       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble})
    for (const std::int64_t count : {0, 1, 3, 16, 31, 64, 65, 1000, 300001}) {
      const auto from = sample(count, type);
      expect_same(from, at::empty_like(from));
    }
  const auto whole = at::arange(100);
  auto to = at::empty_like(whole);
  EXPECT_EQ(copy_counting_not_finite(to, whole), 0);
  EXPECT_TRUE(at::equal(to, whole));
}

TEST(Finite, LanesDoNotOverflow) {
  const auto all = at::full({5'000'003}, std::numeric_limits<float>::quiet_NaN(), at::kHalf);
  EXPECT_EQ(count_not_finite(all), 5'000'003);
  EXPECT_EQ(count_not_finite(at::full({70'000}, std::numeric_limits<float>::max())), 0);
}

TEST(Finite, OtherLayouts) {
  const auto from = sample(60, at::kFloat).view({6, 10});
  expect_same(from.t(), at::empty({10, 6}));
  expect_same(from.t(), at::empty({6, 10}).t());
  expect_same(from.slice(1, 0, 3), at::empty({6, 3}));
  expect_same(sample(20, at::kComplexFloat).conj(), at::empty({20}, at::kComplexFloat));
}

}  // namespace thinwire::test
