// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/fit.h"

#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

std::vector<TimedSize> line(double latency_s, double bytes_per_s, double cpu_s_per_byte = 0) {
  std::vector<TimedSize> out;
  for (Bytes bytes = 4096; bytes <= 64 << 20; bytes *= 4) {
    const auto n = static_cast<double>(bytes);
    out.push_back({bytes, latency_s + n / bytes_per_s, cpu_s_per_byte * n});
  }
  return out;
}

TEST(FitLink, FindsTheLineBehindItsPoints) {
  const LinkFit fit = fit_link(line(1e-4, 1.25e8, 2e-9));
  EXPECT_NEAR(fit.link.latency_s, 1e-4, 1e-9);
  EXPECT_NEAR(fit.link.bytes_per_s / 1.25e8, 1, 1e-6);
  EXPECT_NEAR(fit.link.cpu_s_per_byte, 2e-9, 1e-14);
  EXPECT_LT(fit.residual, 1e-6);
}

TEST(FitLink, NoiseMovesItLittleAndIsTold) {
  Rng rng({.seed = 5, .exchange = -1, .step = 0, .rank = 0});
  auto points = line(2e-4, 1e9);
  for (TimedSize& one : points) one.seconds *= 1 + 0.05 * rng.normal();
  const LinkFit fit = fit_link(points);
  EXPECT_NEAR(fit.link.latency_s, 2e-4, 2e-5);
  EXPECT_NEAR(fit.link.bytes_per_s / 1e9, 1, 0.1);
  EXPECT_GT(fit.residual, 0.01);
  EXPECT_LT(fit.residual, 0.15);
}

TEST(FitLink, SmallSizesCountAsMuchAsLargeOnes) {
  // Above a megabyte the link is slower, as where a buffer overflows; the latency stays.
  auto points = line(1e-3, 1e9);
  for (TimedSize& one : points)
    if (one.bytes > 1 << 20) one.seconds *= 1.2;
  EXPECT_NEAR(fit_link(points).link.latency_s, 1e-3, 1e-4);
}

TEST(FitLink, ALatencyBelowNothingIsNone) {
  const LinkFit fit = fit_link({{1000, 0.9e-3, 0}, {2000, 2e-3, 0}});
  EXPECT_EQ(fit.link.latency_s, 0);
  EXPECT_GT(fit.link.bytes_per_s, 0);
}

TEST(FitLink, RefusesWhatIsNoMeasurement) {
  TW_EXPECT_THROW(fit_link({{1000, 1e-3, 0}}), ConfigError, "two measured sizes, got 1");
  TW_EXPECT_THROW(fit_link({{1000, 1e-3, 0}, {2000, 0, 0}}), ConfigError, "must take time");
  TW_EXPECT_THROW(fit_link({{0, 1e-3, 0}, {0, 2e-3, 0}}), ConfigError, "no rate");
}

}  // namespace
}  // namespace thinwire
