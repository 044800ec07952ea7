// SPDX-License-Identifier: Apache-2.0
// When a training looks for causes: not for noise of a fifth, and soon after a real change.
#include "thinwire/train/drift.h"

#include <gtest/gtest.h>

#include <random>

namespace thinwire {
namespace {

TEST(Drift, NoiseOfAFifthChangesNothing) {
  Drift drift;
  drift.expect(0.1, false);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(1 / 1.2, 1.2);
  for (int window = 0; window < 100000; ++window) ASSERT_FALSE(drift.add(0.1 * noise(random)));
}

TEST(Drift, OneOddWindowChangesNothingTwoInARowDo) {
  Drift drift;
  drift.expect(0.1, false);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(drift.add(0.5));
    EXPECT_FALSE(drift.add(0.1));
  }
  EXPECT_FALSE(drift.add(0.13));
  EXPECT_TRUE(drift.add(0.13));
  drift.expect(0.1, false);
  EXPECT_FALSE(drift.add(0.05)) << "quicker counts as well";
  EXPECT_TRUE(drift.add(0.05));
}

TEST(Drift, LooksThatLeadToNothingBecomeRare) {
  Drift drift;
  drift.expect(0.1, false);
  int looks = 0;
  for (int window = 0; window < 1000; ++window)
    if (drift.add(window % 2 == 0 ? 0.2 : 0.4)) {
      ++looks;
      drift.expect(0.1, true);
    }
  EXPECT_LE(looks, 20);  // 4 + 8 + 16 + 32 + 64 + 64 ...
  EXPECT_GE(looks, 10);
}

TEST(Drift, AWindowIsTwoSeconds) {
  Drift drift;
  drift.expect(0.1, false);
  EXPECT_EQ(drift.window(), 20);
  drift.expect(1e-3, false);
  EXPECT_EQ(drift.window(), 50);
  drift.expect(10, false);
  EXPECT_EQ(drift.window(), 5);
}

}  // namespace
}  // namespace thinwire
