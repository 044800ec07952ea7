// SPDX-License-Identifier: Apache-2.0
// Points of curves against what can be worked out by hand.
#include "thinwire/sim/curve.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using Options = std::map<std::string, std::string>;

Options with(Options base, const Options& more) {
  for (const auto& [key, value] : more) base[key] = value;
  return base;
}

const Options kVgg{{"model", "vgg19"},
                   {"forward_s", "0.04"},
                   {"backward_s", "0.08"},
                   {"alpha_s", "1e-5"},
                   {"s_per_byte", "1e-10"}};
constexpr double kVggBytes = 4.0 * 143667240;

TEST(CurvePoint, OneMessageForAllIsComputationAndOneAllReduce) {
  for (const int n : {2, 8, 2048}) {
    const auto point =
        curve_point(with(kVgg, {{"ranks", std::to_string(n)}, {"grouping", "single"}}));
    const double all_reduce = 2 * (n - 1) * 1e-5 + 2.0 * (n - 1) / n * 1e-10 * kVggBytes;
    EXPECT_NEAR(point.at("all_reduce_s"), all_reduce, 1e-9);
    EXPECT_NEAR(point.at("step_s"), 0.12 + all_reduce, 1e-9);
    EXPECT_NEAR(point.at("speedup"), n * 0.12 / (0.12 + all_reduce), 1e-6 * n);
    EXPECT_NEAR(point.at("bytes"), 2.0 * (n - 1) / n * kVggBytes, 1);
    EXPECT_EQ(point.at("messages"), 1);
    EXPECT_NEAR(point.at("start_messages"), 2 * (n - 1), 1e-6);
  }
}

TEST(CurvePoint, OneRankComputesOnly) {
  const auto point = curve_point(with(kVgg, {{"ranks", "1"}, {"samples", "6"}}));
  EXPECT_NEAR(point.at("step_s"), 0.12, 1e-12);
  EXPECT_NEAR(point.at("speedup"), 1, 1e-9);
  EXPECT_NEAR(point.at("samples_per_s"), 50, 1e-6);
  EXPECT_EQ(point.at("bytes"), 0);
}

TEST(CurvePoint, AMeasuredLineTakesThePlaceOfPointToPoint) {
  const auto point = curve_point(with(kVgg, {{"ranks", "8"},
                                             {"grouping", "single"},
                                             {"start_s", "0.5"},
                                             {"payload_s_per_byte", "1e-9"}}));
  EXPECT_NEAR(point.at("step_s"), 0.12 + 0.5 + 1e-9 * kVggBytes, 1e-9);
}

TEST(CurvePoint, WithoutOverlapEverythingFollowsBackward) {
  const auto point =
      curve_point(with(kVgg, {{"ranks", "4"}, {"grouping", "wfbp"}, {"overlap", "false"}}));
  EXPECT_NEAR(point.at("step_s"), 0.12 + 38 * 6e-5 + 1.5e-10 * kVggBytes, 1e-9);
}

TEST(CurvePoint, AnIntervalSendsSoMuchLess) {
  const auto all = curve_point(with(kVgg, {{"ranks", "4"}, {"grouping", "ddp"}}));
  const auto some = curve_point(with(kVgg, {{"ranks", "4"}, {"grouping", "ddp"}, {"every", "4"}}));
  EXPECT_NEAR(some.at("bytes"), all.at("bytes") / 4, 2);
  EXPECT_NEAR(some.at("messages"), all.at("messages") / 4, 1e-9);
}

TEST(CurvePoint, HybridIsTheLowerEnvelope) {
  for (const char* ranks : {"32", "64", "256", "2048"}) {
    const auto of = [&](const char* algorithm) {
      return curve_point(with(kVgg, {{"ranks", ranks}, {"inner", "16"}, {"algorithm", algorithm}}))
          .at("step_s");
    };
    EXPECT_LE(of("hybrid"), std::min(of("ring"), of("hierarchical")) + 1e-9) << ranks;
  }
}

TEST(CurvePoint, CyclesFuseWhatHasBecomeReady) {
  const auto messages = [](const char* cycle_s) {
    return curve_point(with(kVgg, {{"ranks", "4"}, {"cycle_s", cycle_s}, {"fuse_bytes", "1GiB"}}))
        .at("messages");
  };
  EXPECT_EQ(messages("10"), 1);
  EXPECT_GT(messages("0.001"), messages("0.01"));
  // Tensors without computation of their own, the biases, never go alone.
  EXPECT_LE(messages("1e-6"), 19 + 1);
}

TEST(CurvePoint, RefusesWhatItDoesNotKnow) {
  TW_EXPECT_THROW(curve_point({{"ranks", "2"}}), ConfigError, "one of model, control and strategy");
  TW_EXPECT_THROW(curve_point(with(kVgg, {{"rank", "2"}})), ConfigError, "'ranks'");
  TW_EXPECT_THROW(curve_point(with(kVgg, {{"ranks", "0"}})), ConfigError,
                  "ranks must be in [1, 2^40], got 0");
  TW_EXPECT_THROW(curve_point(with(kVgg, {{"ranks", "2"}, {"s_per_byte", "-1"}})), ConfigError,
                  "s_per_byte must be finite and at least 0, got -1");
  TW_EXPECT_THROW(curve_point(with(kVgg, {{"ranks", "2"}, {"algorithm", "rong"}})), ConfigError,
                  "unknown all-reduce algorithm 'rong'");
}

}  // namespace
}  // namespace thinwire
