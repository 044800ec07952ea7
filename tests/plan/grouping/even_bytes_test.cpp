// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

using Layers = std::vector<std::vector<int>>;

TEST(EvenBytes, ClosesAMessageOnceItsShareIsReached) {
  const auto m = model(0, {1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}, 1, 1);
  EXPECT_EQ(layers_of(m.group("even_bytes{count=3}")), (Layers{{6, 5}, {4, 3}, {2, 1}}));
  EXPECT_EQ(layers_of(m.group("even_bytes{count=1}")), (Layers{{6, 5, 4, 3, 2, 1}}));
  EXPECT_EQ(layers_of(m.group("even_bytes{count=100}")), (Layers{{6}, {5}, {4}, {3}, {2}, {1}}));
}

TEST(EvenBytes, ALargeTensorTakesTheSharesOfOthers) {
  const auto m = model(0, {1, 1, 1, 1}, {1, 1, 9, 1}, 1, 1);
  EXPECT_EQ(layers_of(m.group("even_bytes{count=4}")), (Layers{{4, 3}, {2, 1}}));
  EXPECT_EQ(m.group("even_bytes"), m.group("even_bytes{count=4}"));
}

TEST(EvenBytes, DtypesFillMessagesOfTheirOwn) {
  auto m = model(0, {1, 1, 1, 1}, {2, 2, 2, 2}, 1, 1);
  m.profile.params[0].dtype = DType::f16;
  m.profile.params[2].dtype = DType::f16;
  EXPECT_EQ(layers_of(m.group("even_bytes{count=1}")), (Layers{{4, 2}, {3, 1}}));
}

TEST(EvenBytes, RefusesNoMessages) {
  const auto m = model(0, {1}, {1}, 1, 1);
  TW_EXPECT_THROW(m.group("even_bytes{count=0}"), ConfigError,
                  "even_bytes: count must be at least 1, got 0");
}

}  // namespace
}  // namespace thinwire::test
