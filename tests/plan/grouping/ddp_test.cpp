// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

using Layers = std::vector<std::vector<int>>;

TEST(Ddp, ClosesABucketOnceItHasReachedItsCap) {
  const auto m = model(0, {1, 1, 1, 1, 1, 1}, {3, 3, 3, 3, 3, 3}, 1, 1);
  EXPECT_EQ(layers_of(m.group("ddp{first=2,bytes=5}")), (Layers{{6}, {5, 4}, {3, 2}, {1}}));
  EXPECT_EQ(layers_of(m.group("ddp{first=100,bytes=5}")), (Layers{{6, 5, 4, 3, 2, 1}}));
  EXPECT_EQ(m.group("ddp"), m.group("ddp{bytes=25MiB,first=1MiB}"));
}

TEST(Ddp, IsWhatCovapCuts) {
  const auto m = model(0, {1, 1, 1, 1}, {4, 4, 4, 4}, 1, 1);
  EXPECT_EQ(m.group("ddp{first=4,bytes=8}"), m.group("covap{interval=1,first=4,bytes=8}"));
}

TEST(Ddp, RefusesBucketsOfNothing) {
  const auto m = model(0, {1}, {1}, 1, 1);
  TW_EXPECT_THROW(m.group("ddp{bytes=0}"), ConfigError, "ddp: bytes must be at least 1, got 0");
}

}  // namespace
}  // namespace thinwire::test
