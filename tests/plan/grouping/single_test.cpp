// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/plan/models.h"

namespace thinwire::test {
namespace {

TEST(Single, OneMessageAfterBackward) {
  const auto m = model(2, {2, 2, 2, 2}, {4, 1, 1, 1}, 3, 1);
  EXPECT_EQ(layers_of(m.group("single")), (std::vector<std::vector<int>>{{4, 3, 2, 1}}));
  EXPECT_DOUBLE_EQ(m.step_s("single"), 2 + 8 + 3 + 7);
}

TEST(Single, OneMessageADtypeReadyFirstInFront) {
  auto m = model(0, {1, 1, 1, 1}, {1, 2, 3, 4}, 1, 1);
  m.profile.params[1].dtype = DType::f16;
  m.profile.params[2].dtype = DType::f16;
  EXPECT_EQ(layers_of(m.group("single")), (std::vector<std::vector<int>>{{3, 2}, {4, 1}}));
}

}  // namespace
}  // namespace thinwire::test
