// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/cluster.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"

namespace thinwire {
namespace {

Cluster two_levels() {
  return {.ranks_per_level = {2, 4},
          .links = {{"all_reduce", {{1e-6, 1e10, 0}, {1e-4, 1.25e8, 1e-9}}}},
          .speed = {1, 1, 1, 1, 1, 1, 1, 0.5},
          .shared_core = true};
}

TEST(Cluster, JsonRoundTrip) {
  const Cluster cluster = two_levels();
  EXPECT_EQ(world_size(cluster), 8);
  EXPECT_EQ(cluster_from_json(to_json(cluster)), cluster);
  EXPECT_EQ(to_json(cluster_from_json(to_json(cluster))), to_json(cluster));
}

TEST(Cluster, Refusals) {
  const auto refused = [](auto change, const std::string& words) {
    Cluster cluster = two_levels();
    change(cluster);
    TW_EXPECT_THROW(validate(cluster), ConfigError, words);
  };
  refused([](auto& c) { c.ranks_per_level = {}; }, "at least one level");
  refused([](auto& c) { c.ranks_per_level = {2, 0}; }, "at least 1 each, got 0");
  refused([](auto& c) { c.ranks_per_level = {4096, 4096}; }, "more than 1048576 ranks");
  refused([](auto& c) { c.links.clear(); }, "must have an entry 'all_reduce'");
  refused([](auto& c) { c.links["all_reduce"].pop_back(); }, "2 levels need as many links, got 1");
  refused([](auto& c) { c.links["all_reduce"][1].latency_s = -1; }, "level 1: latency_s must be");
  refused([](auto& c) { c.links["all_reduce"][0].bytes_per_s = 0; }, "above 0, got 0");
  refused([](auto& c) { c.links["all_reduce"][0].cpu_s_per_byte = NAN; }, "got nan");
  refused([](auto& c) { c.speed = {1}; }, "8 ranks need as many speeds, or none, got 1");
  refused([](auto& c) { c.speed[3] = 0; }, "speed must be finite and above 0");
}

TEST(Cluster, FilesAreRefusedByName) {
  TW_EXPECT_THROW(cluster_from_json(R"({"ranks_per_level": [2]})", "c.json"), ConfigError,
                  "c.json: links must have an entry 'all_reduce'");
  TW_EXPECT_THROW(cluster_from_json(R"({"ranks_per_levels": [2]})", "c.json"), DataError,
                  "c.json: unknown key 'ranks_per_levels'; did you mean 'ranks_per_level'?");
  TW_EXPECT_THROW(
      cluster_from_json(R"({"ranks_per_level": [2], "links": {"all_reduce": [{"latency_s": 1}]}})",
                        "c.json"),
      DataError, "c.json: links 'all_reduce', level 0: 'bytes_per_s' is missing");
}

TEST(KnownFailures, KF54_OneRankNeedsNoLinks) {
  const Cluster cluster = cluster_from_json(R"({"ranks_per_level": [1]})");
  validate(cluster);
  EXPECT_EQ(all_reduce_cost(cluster)(1e9), 0);
}

TEST(AllReduceCost, AddsTheLevelsThatHaveMoreThanOneRank) {
  Cluster cluster = two_levels();
  EXPECT_DOUBLE_EQ(all_reduce_cost(cluster)(1e6), 1e-6 + 1e-4 + 1e6 / 1e10 + 1e6 / 1.25e8);
  EXPECT_EQ(all_reduce_cost(cluster)(0), 0);
  cluster.ranks_per_level = {1, 8};
  EXPECT_DOUBLE_EQ(all_reduce_cost(cluster)(1e6), 1e-4 + 1e6 / 1.25e8);
}

// The five rows of the paper's table, each counted round by round for 8 ranks and 1 MB.
TEST(AllReduceLink, TheTableCountedRoundByRound) {
  constexpr double kAlpha = 3e-5, kBeta = 8e-10, kGamma = 1e-10, kBytes = 1e6;
  constexpr int kRanks = 8;
  const auto predicted = [&](const char* algorithm) {
    const Link link = all_reduce_link(algorithm, kRanks, {kAlpha, kBeta, kGamma});
    return link.latency_s + kBytes / link.bytes_per_s;
  };
  double ring = 0, doubling = 0, halving = 0, tree = 0;
  for (int round = 0; round < kRanks - 1; ++round) {
    ring += kAlpha + kBytes / kRanks * (kBeta + kGamma);  // reduce-scatter
    ring += kAlpha + kBytes / kRanks * kBeta;             // all-gather
  }
  for (double part = kBytes / 2; part >= kBytes / kRanks; part /= 2) {
    doubling += kAlpha + kBytes * (kBeta + kGamma);
    halving += kAlpha + part * (kBeta + kGamma) + kAlpha + part * kBeta;
    tree += kAlpha + kBytes * (kBeta + kGamma) + kAlpha + kBytes * kBeta;
  }
  EXPECT_NEAR(predicted("ring"), ring, 1e-12);
  EXPECT_NEAR(predicted("recursive_doubling"), doubling, 1e-12);
  EXPECT_NEAR(predicted("halving_doubling"), halving, 1e-12);
  EXPECT_NEAR(predicted("tree"), tree, 1e-12);
  EXPECT_NEAR(predicted("double_tree"), 6 * kAlpha + kBytes * (kBeta + kGamma), 1e-12);
  TW_EXPECT_THROW(all_reduce_link("rnig", 2, {}), ConfigError, "did you mean 'ring'?");
  TW_EXPECT_THROW(all_reduce_link("ring", 1, {}), ConfigError, "at least 2 ranks, got 1");
}

// The start-up and byte costs published with the paper, on one list of layers: many small tensors,
// few large ones. The gain of merging must grow with the start-up cost, as the paper reports.
TEST(PublishedConstants, MergingPaysWhereStartUpIsDear) {
  struct Published {
    const char* where;
    double a, b;
  };
  for (const auto& [where, a, b] :
       {Published{"16 GPUs, 10 GbE", 9.08e-4, 7.40e-10},
        Published{"8 GPUs, 10 GbE", 5.23e-4, 8.57e-10},
        Published{"16 GPUs, 56 Gb IB", 2.36e-4, 4.06e-10},
        Published{"8 GPUs, IB", 9.75e-5, 3.06e-10}, Published{"8 nodes, MPI log", 8.2e-4, 3.35e-9},
        Published{"4 nodes, MPI log", 2.55e-4, 2.02e-9},
        Published{"2 nodes, MPI log", 1.13e-4, 1.64e-9}}) {
    std::vector<double> t_b;
    std::vector<int> p;
    for (int layer = 0; layer < 64; ++layer) {  // 64 layers, 13.4 M elements, as GoogLeNet has
      t_b.push_back(20e-3 / 64);
      p.push_back(layer % 2 == 0 ? 1'000 : 1'670'000);
    }
    const auto m = test::model(10e-3, t_b, p, a, b);
    const double exact = m.step_s("exact"), wfbp = m.step_s("wfbp");
    EXPECT_LE(exact, m.step_s("mg_wfbp") + 1e-12) << where;
    EXPECT_LE(exact, m.step_s("single") + 1e-12) << where;
    // Every second message can be spared, and no plan spares more start-ups than all but one.
    EXPECT_GE(wfbp - exact, 15 * a) << where;
    EXPECT_LE(wfbp - exact, 63 * a) << where;
  }
}

TEST(Cluster, ChangedByTheRingsLaw) {
  Cluster two{.ranks_per_level = {2}, .links = {{"all_reduce", {{2e-4, 1e8, 1e-9}}}}};
  two.links["gather"] = {{1e-4, 1e8, 1e-9}};
  EXPECT_EQ(changed(two, {}), two);
  // Of two ranks an all-reduce sends as many bytes as it adds; of eight, 7/4 of them.
  const Cluster eight = changed(two, {.ranks = 8});
  const Link& ring = eight.links.at("all_reduce")[0];
  EXPECT_DOUBLE_EQ(ring.latency_s, 14e-4);
  EXPECT_DOUBLE_EQ(ring.bytes_per_s, 1e8 / 1.75);
  EXPECT_DOUBLE_EQ(ring.cpu_s_per_byte, 1.75e-9);
  EXPECT_DOUBLE_EQ(eight.links.at("gather")[0].bytes_per_s, 1e8 / 7);
  EXPECT_DOUBLE_EQ(eight.links.at("gather")[0].latency_s, 7e-4);
  const Cluster slow = changed(two, {.bytes_per_s = 12.5e6, .latency_s = 1e-3});
  EXPECT_DOUBLE_EQ(slow.links.at("all_reduce")[0].bytes_per_s, 12.5e6);
  EXPECT_DOUBLE_EQ(slow.links.at("all_reduce")[0].latency_s, 2e-3);
  EXPECT_DOUBLE_EQ(slow.links.at("gather")[0].latency_s, 1e-3);
  EXPECT_EQ(changed(eight, {.ranks = 2}).links.at("all_reduce")[0].latency_s, 2e-4);

  const Cluster levels = changed(two_levels(), {.ranks = 4});
  EXPECT_EQ(levels.ranks_per_level, (std::vector<int>{2, 2}));
  EXPECT_EQ(levels.links.at("all_reduce")[0], two_levels().links.at("all_reduce")[0]);
  EXPECT_EQ(levels.speed, std::vector<double>(4, 0.5)) << "the slowest may be among them";
  TW_EXPECT_THROW(changed(two_levels(), {.ranks = 3}), ConfigError,
                  "ranks must be a multiple of 2, those of the inner levels, got 3");
  const Cluster one{.ranks_per_level = {1}};
  TW_EXPECT_THROW(changed(one, {.ranks = 2}), ConfigError, "need a rate and a latency");
  EXPECT_EQ(world_size(changed(one, {.ranks = 4, .bytes_per_s = 1e8, .latency_s = 1e-4})), 4);
}

}  // namespace
}  // namespace thinwire
