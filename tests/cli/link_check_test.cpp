// SPDX-License-Identifier: Apache-2.0
// The measurement behind `thinwire doctor --rate`, over links whose rate is known.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/watchdog.h"
#include "thinwire/cli/doctor.h"
#include "thinwire/comm/comm.h"

namespace thinwire {
namespace {

TEST(LinkCheck, MeasuresEveryLinkOfRankZeroInBothDirections) {
  const test::Watchdog watchdog;
  const double rate_bytes_per_s = 2e6;  // slow, so that a busy machine does not matter
  auto comms = make_local(3, 20, "throttle{rate=16mbit}|local");
  std::vector<Json> links(comms.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    ranks.emplace_back([&, rank] { links[rank] = cli::measure_links(*comms[rank]); });
  for (auto& rank : ranks) rank.join();
  EXPECT_TRUE(links[1].empty());
  EXPECT_TRUE(links[2].empty());
  ASSERT_EQ(links[0].size(), 4U);
  const int expected[4][2] = {{0, 1}, {1, 0}, {0, 2}, {2, 0}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(links[0][i].at("from"), expected[i][0]);
    EXPECT_EQ(links[0][i].at("to"), expected[i][1]);
    const double measured = links[0][i].at("bytes_per_s");
    EXPECT_GT(measured, 0.7 * rate_bytes_per_s);
    EXPECT_LT(measured, 1.2 * rate_bytes_per_s);
    EXPECT_GT(links[0][i].at("round_trip_s"), 0.0);
  }
}

}  // namespace
}  // namespace thinwire
