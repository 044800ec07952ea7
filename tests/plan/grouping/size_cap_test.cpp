// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"

namespace thinwire::test {
namespace {

using Layers = std::vector<std::vector<int>>;

TEST(SizeCap, ClosesWhenTheNextTensorWouldPassTheCap) {
  const auto m = model(0, {1, 1, 1, 1, 1}, {3, 9, 2, 4, 4}, 1, 1);
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=8}")), (Layers{{5, 4}, {3}, {2}, {1}}));
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=10}")), (Layers{{5, 4, 3}, {2}, {1}}));
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=1}")), (Layers{{5}, {4}, {3}, {2}, {1}}));
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=1GB}")), (Layers{{5, 4, 3, 2, 1}}));
}

TEST(SizeCap, DefaultMergesSmallTensorsAndSendsLargeOnesAlone) {
  // The MLP 784-2048-2048-2048-10: weight and bias of each layer, 4-byte elements.
  Profile profile;
  for (const auto& [in, out] : {std::pair{784, 2048}, {2048, 2048}, {2048, 2048}, {2048, 10}}) {
    profile.params.push_back({"weight", DType::f32, {out, in}});
    profile.params.push_back({"bias", DType::f32, {out}});
  }
  profile.forward_s.assign(8, 0.001);
  profile.backward_s.assign(8, 0.002);
  const Model m{profile, model(0, {1}, {1}, 1, 1).cluster};
  EXPECT_EQ(layers_of(m.group("size_cap")), (Layers{{8, 7, 6}, {5}, {4}, {3}, {2}, {1}}));
  EXPECT_EQ(m.group("size_cap"), m.group("size_cap{bytes=1MiB}"));
}

TEST(SizeCap, DtypesFillBucketsOfTheirOwn) {
  auto m = model(0, {1, 1, 1, 1}, {2, 2, 2, 2}, 1, 1);
  m.profile.params[0].dtype = DType::f16;  // 4 bytes each
  m.profile.params[2].dtype = DType::f16;
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=8}")), (Layers{{4, 2}, {3, 1}}));
}

TEST(SizeCap, EmptyTensorsTravelWithTheirNeighbours) {
  const auto m = model(0, {1, 1, 1}, {4, 0, 4}, 1, 1);
  EXPECT_EQ(layers_of(m.group("size_cap{bytes=4}")), (Layers{{3, 2}, {1}}));
}

TEST(SizeCap, RefusesWrongOptions) {
  const auto m = model(0, {1}, {1}, 1, 1);
  TW_EXPECT_THROW(m.group("size_cap{bytes=0}"), ConfigError, "bytes must be at least 1, got 0");
  TW_EXPECT_THROW(m.group("size_cap{byts=4}"), ConfigError, "did you mean 'bytes'?");
  TW_EXPECT_THROW(m.group("size_cap{bytes=4 apples}"), ConfigError, "size_cap: bytes: '4 apples'");
}

}  // namespace
}  // namespace thinwire::test
