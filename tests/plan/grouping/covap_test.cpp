// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"
#include "thinwire/plan/plan.h"

namespace thinwire::test {
namespace {

std::int64_t elements_of(const Bucket& bucket) {
  std::int64_t out = 0;
  for (const Slice& slice : bucket.slices) out += slice.end - slice.begin;
  return out;
}

Model unmeasured(const std::vector<TensorDesc>& params) {
  Model out = model(0, {1}, {1}, 1, 1);
  out.profile.params = params;
  out.profile.forward_s.assign(params.size(), 0);
  out.profile.backward_s.assign(params.size(), 0);
  return out;
}

/// VGG-19 with 1000 classes, weight and bias of each layer: 143,667,240 parameters.
Model vgg19() {
  std::vector<TensorDesc> params;
  const auto layer = [&](std::int64_t in, std::int64_t out) {
    params.push_back({"weight", DType::f32, {out, in}});
    params.push_back({"bias", DType::f32, {out}});
  };
  std::int64_t in = 3;
  for (const std::int64_t out :
       {64, 64, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512, 512, 512, 512, 512}) {
    layer(in * 9, out);
    in = out;
  }
  layer(512 * 49, 4096);
  layer(4096, 4096);
  layer(4096, 1000);
  return unmeasured(params);
}

std::vector<double> millions(const Grouping& grouping) {
  std::vector<double> out;
  for (const Bucket& bucket : grouping)
    out.push_back(std::round(static_cast<double>(elements_of(bucket)) / 1e4) / 100);
  return out;
}

/// Millions of elements that each of I steps sends, the first being step 1: bucket s where
/// (s + t) mod I = 0; in ascending order, to a tenth.
std::vector<double> sent(const Grouping& grouping, int interval) {
  std::vector<double> out(static_cast<std::size_t>(interval), 0);
  for (std::size_t s = 0; s < grouping.size(); ++s)
    out[(static_cast<std::size_t>(interval) - s % out.size()) % out.size()] +=
        static_cast<double>(elements_of(grouping[s])) / 1e6;
  std::sort(out.begin(), out.end());
  for (double& each : out) each = std::round(each * 10) / 10;
  return out;
}

TEST(Covap, FillsBucketsOfVgg19AsDdpDoes) {
  EXPECT_EQ(millions(vgg19().group("covap{interval=1}")),
            (std::vector<double>{4.10, 16.78, 102.76, 7.08, 7.08, 5.87}));
}

// The table of the brief: shards a bucket 1,2,2,1,1,1 (I = 2), 1,3,3,1,1,1 (3), 1,3,4,1,1,1 (4) and
// 1,3,5,1,1,1 (5), and what each step sends then.
TEST(Covap, CutsBucketsOfVgg19) {
  const auto m = vgg19();
  EXPECT_EQ(m.group("covap{interval=2}").size(), 8u);
  EXPECT_EQ(m.group("covap{interval=3}").size(), 10u);
  EXPECT_EQ(m.group("covap{interval=4}").size(), 11u);
  EXPECT_EQ(m.group("covap{interval=5}").size(), 12u);
  EXPECT_EQ(sent(m.group("covap{interval=2}"), 2), (std::vector<double>{70.9, 72.7}));
  EXPECT_EQ(sent(m.group("covap{interval=3}"), 3), (std::vector<double>{46.9, 46.9, 49.8}));
  EXPECT_EQ(sent(m.group("covap{interval=4}"), 4), (std::vector<double>{31.3, 36.9, 37.2, 38.4}));
  EXPECT_EQ(sent(m.group("covap{interval=5}"), 5),
            (std::vector<double>{26.1, 26.1, 27.6, 31.7, 32.0}));
  // Without cutting, one step in I still sends most of it.
  EXPECT_EQ(sent(m.group("covap{interval=1}"), 4), (std::vector<double>{7.1, 11.2, 22.6, 102.8}));
}

TEST(Covap, ShardsAreContiguousAndEvenAndCoverEverything) {
  const auto m = unmeasured({{"a", DType::f32, {10}},
                             {"b", DType::f32, {0}},
                             {"c", DType::f32, {101}},
                             {"d", DType::f32, {10}},
                             {"e", DType::f32, {10}}});
  const Grouping grouping = m.group("covap{interval=4,bytes=40,first=40}");  // e, d, c, b with a
  ASSERT_EQ(grouping.size(), 7u);
  for (int shard = 0; shard < 4; ++shard)
    EXPECT_EQ(grouping[static_cast<std::size_t>(2 + shard)].slices,
              (std::vector<Slice>{{2, 101 * shard / 4, 101 * (shard + 1) / 4}}));
  EXPECT_EQ(grouping_fault(grouping, m.profile.params), "");
}

TEST(Covap, IntervalFollowsTheMeasuredRatio) {
  // Backward 4 s; the wire takes 0.5 + 0.25 s a byte, so 22 bytes take 6 s and I is 2.
  const auto m = model(0, {2, 1, 1}, {2, 18, 2}, 0.5, 0.25);
  EXPECT_EQ(m.group("covap{first=1,bytes=1}"), m.group("covap{first=1,bytes=1,interval=2}"));
  EXPECT_NE(m.group("covap{first=1,bytes=1}"), m.group("covap{first=1,bytes=1,interval=3}"));
  const auto fast = model(0, {2, 1, 1}, {2, 18, 2}, 0.5, 0.01);
  EXPECT_EQ(fast.group("covap{first=1,bytes=1}").size(), 3u);
}

// I = ceil(CCR), at least 1.
TEST(Covap, IntervalOfARatio) {
  EXPECT_EQ(interval_of_ratio(0), 1);
  EXPECT_EQ(interval_of_ratio(0.3), 1);
  EXPECT_EQ(interval_of_ratio(1), 1);
  EXPECT_EQ(interval_of_ratio(1.01), 2);
  EXPECT_EQ(interval_of_ratio(3.9), 4);
  EXPECT_EQ(interval_of_ratio(1e300), 1 << 20);
  TW_EXPECT_THROW(interval_of_ratio(-1), ConfigError, "at least 0, got -1");
  TW_EXPECT_THROW(interval_of_ratio(std::nan("")), ConfigError, "got nan");
}

TEST(Covap, PlansEachBucketOnceInIntervalSteps) {
  const auto m = unmeasured({{"a", DType::f32, {40}}, {"b", DType::f32, {10}}});
  const Grouped grouped =
      make_grouped(parse_spec("covap{interval=3,bytes=40,first=40,skipped=frozen}"), m.input());
  EXPECT_EQ(grouped.every, 3);
  EXPECT_TRUE(grouped.frozen);
  const Plan plan = data_parallel_plan(m.profile.params, grouped.grouping, 2, {}, grouped.every);
  for (std::size_t s = 0; s < grouped.grouping.size(); ++s) {
    EXPECT_EQ(plan.exchanges[s].start.every, 3);
    EXPECT_EQ(plan.exchanges[s].start.offset, static_cast<int>((s + 1) % 3));
  }
  // An exchange of 40 bytes takes 1.5 s; gradients are ready after 1 s and 2 s.
  const Model timed = model(0, {1, 1}, {40, 40}, 1, 0.0125);
  EXPECT_NEAR(timed.step_s("covap{interval=1,bytes=40,first=40}"), 4, 1e-9);
  EXPECT_NEAR(timed.step_s("covap{interval=2,bytes=40,first=40}"), (3.5 + 2.5) / 2, 1e-9);
}

TEST(Covap, RefusesWrongOptions) {
  const auto m = vgg19();
  TW_EXPECT_THROW(m.group("covap"), ConfigError, "interval must be given");
  TW_EXPECT_THROW(m.group("covap{interval=0}"), ConfigError,
                  "interval must be auto or in [1, 1048576], got 0");
  TW_EXPECT_THROW(m.group("covap{interval=2,skipped=none}"), ConfigError,
                  "skipped must be zero or frozen, got 'none'");
  TW_EXPECT_THROW(m.group("covap{interval=2,bytes=0}"), ConfigError, "bytes must be at least 1");
  TW_EXPECT_THROW(m.group("covap{interval=2,first=0}"), ConfigError, "first must be at least 1");
}

}  // namespace
}  // namespace thinwire::test
