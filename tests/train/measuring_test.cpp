// SPDX-License-Identifier: Apache-2.0
// What plans are made from: layer times from hooks, links from collectives, speeds of forms.
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/error.h"
#include "thinwire/exchange/form_speed.h"
#include "thinwire/sim/search.h"
#include "thinwire/train/measure_cluster.h"
#include "thinwire/train/profiler.h"

namespace thinwire {
namespace {

void work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(Profiler, TellsLayersApartByTheirSleeps) {
  const test::Watchdog watchdog;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const char* name : {"a", "b", "c"})
    parameters.emplace_back(name, at::ones({4}).requires_grad_());
  const int takes[] = {20, 30, 10};  // of each layer's backward
  const Profile profile = profile_model(parameters, [&] {
    for (auto& [name, p] : parameters) p.mutable_grad().reset();
    work(15);
    at::Tensor y = at::ones({4});
    for (std::size_t i = 0; i < 3; ++i) {
      y = at::mul(y, parameters[i].second);
      y.register_hook([ms = takes[i]](const at::Tensor&) { work(ms); });
    }
    y.sum().backward();
    work(5);
  });
  ASSERT_EQ(profile.params.size(), 3u);
  EXPECT_EQ(profile.params[1].name, "b");
  EXPECT_EQ(profile.params[1].shape, std::vector<std::int64_t>{4});
  // The first gradient is c's: what comes before it counts as forward. Sleeps are never shorter; on
  // a busy machine they are longer.
  const double forward = std::accumulate(profile.forward_s.begin(), profile.forward_s.end(), 0.0);
  EXPECT_GE(forward, 0.025);
  EXPECT_LT(forward, 0.055);
  EXPECT_EQ(profile.backward_s[2], 0);
  EXPECT_GE(profile.backward_s[1], 0.030);
  EXPECT_LT(profile.backward_s[1], 0.055);
  EXPECT_GE(profile.backward_s[0], 0.020);
  EXPECT_LT(profile.backward_s[0], 0.045);
  EXPECT_GE(profile.update_s, 0.005);
  EXPECT_LT(profile.update_s, 0.025);
}

TEST(Profiler, RefusesAModelWithoutGradients) {
  const std::vector<std::pair<std::string, at::Tensor>> parameters{
      {"w", at::ones({2}).requires_grad_()}};
  TW_EXPECT_THROW(profile_model(parameters, [] {}), ConfigError, "no parameter receives");
}

TEST(MeasureCluster, FindsTheRateOfAThrottledLink) {
  const test::Watchdog watchdog;
  // An all-reduce of two ranks sends as many bytes each way as it adds; so does an all-gather.
  auto comms = make_local(2, 20, "throttle{rate=80mbit,latency_ms=2}|local");
  std::vector<MeasuredCluster> seen(2);
  test::ranks_as_threads(2, [&](Rank rank) {
    seen[static_cast<std::size_t>(rank)] =
        measure_cluster(*comms[static_cast<std::size_t>(rank)], 1 << 20);
  });
  EXPECT_EQ(seen[0].cluster.ranks_per_level, std::vector<int>{2});
  for (const char* name : {"all_reduce", "gather"}) {
    const Link& link = seen[0].cluster.links.at(name).at(0);
    EXPECT_NEAR(link.bytes_per_s / 1e7, 1, 0.15) << name;
    EXPECT_GT(link.latency_s, 1e-3) << name;
    EXPECT_LT(link.latency_s, 20e-3) << name;
    EXPECT_LT(seen[0].residual.at(name), 0.5) << name;
    EXPECT_EQ(link.bytes_per_s, seen[1].cluster.links.at(name).at(0).bytes_per_s)
        << "the same on every rank";
    EXPECT_EQ(seen[0].points.at(name).front().bytes, 4096);
  }
  auto alone = make_local(1, 20);
  EXPECT_TRUE(measure_cluster(*alone[0], 1 << 20).cluster.links.empty());
}

TEST(FormSpeed, OfEveryFormThatASearchMayTry) {
  const TensorDesc matrix{"matrix", DType::f32, {256, 256}};
  for (const std::string& text : forms_of(Quality::free, true)) {
    if (text == "none") continue;
    const CodecSpeed speed = form_speed(parse_chain(text), std::span(&matrix, 1), 2);
    EXPECT_GT(speed.encode_bytes_per_s, 1e6) << text;
    EXPECT_LT(speed.encode_bytes_per_s, 1e12) << text;
    EXPECT_GT(speed.decode_bytes_per_s, 1e6) << text;
    EXPECT_LT(speed.decode_bytes_per_s, 1e12) << text;
  }
  TW_EXPECT_THROW(form_speed(parse_chain("qsgd_max_norm"), std::span(&matrix, 1), 2),
                  UnsupportedError, "agrees with other ranks first");
}

}  // namespace
}  // namespace thinwire
