// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/sim/cost.h"

namespace thinwire {
namespace {

using test::model;
using test::Model;

/// Data parallelism without the step header, which the hand-made figures do not have.
Plan plan_of(const Profile& profile, Grouping grouping, int ranks) {
  Plan plan = data_parallel_plan(profile.params, std::move(grouping), ranks, {});
  std::erase_if(plan.exchanges, [](const Exchange& e) { return e.bucket < 0; });
  return plan;
}

Seconds last_step(const Plan& plan, const Model& of, int steps = 6) {
  return step_seconds(simulate(plan, of.profile, of.cluster, {.steps = steps})).back();
}

/// Twenty layers, 60 s of computation, three large tensors at the end.
Model twenty_layers() {
  Model out = model(0, std::vector<double>(20, 2), std::vector<int>(20, 10), 0.8, 0.09);
  for (std::size_t i = 0; i < 20; ++i) {
    out.profile.forward_s[i] = 1;
    if (i >= 17) out.profile.params[i].shape = {120};
  }
  return out;
}

/// Buckets in backward order, closed at `bytes`.
Grouping merged(const Profile& profile, Bytes bytes) {
  Grouping out(1);
  Bytes held = 0;
  for (std::size_t i = profile.params.size(); i-- > 0;) {
    out.back().slices.push_back({static_cast<int>(i), 0, elements(profile.params[i])});
    held += dense_bytes(profile.params[i]);
    if (held >= bytes && i > 0) {
      out.emplace_back();
      held = 0;
    }
  }
  return out;
}

}  // namespace

// Every bucket has rank, step, begin, end and bytes, in units that the names say.
TEST(KnownFailures, KF51_MoreThanATotal) {
  Model m = model(0, {1, 1, 1}, {1000, 2000, 3000}, 1, 1);
  for (TensorDesc& tensor : m.profile.params) tensor.dtype = DType::f32;
  const Link ring = all_reduce_link("ring", 2, {.latency_s = 1e-3, .s_per_byte = 1e-6});
  m.cluster.links["all_reduce"] = {ring};
  const Plan plan = plan_of(m.profile, {{{{2, 0, 3000}, {1, 0, 2000}}}, {{{0, 0, 1000}}}}, 2);
  const Trace trace = simulate(plan, m.profile, m.cluster);
  std::vector<Event> sent;
  for (const Event& event : trace)
    if (event.kind == OpKind::exchange) sent.push_back(event);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_NEAR(sent[0].begin_s, 2.000, 1e-9);
  EXPECT_NEAR(sent[0].end_s, 2.022, 1e-9);
  EXPECT_EQ(sent[0].bytes, 20000);
  EXPECT_NEAR(sent[1].begin_s, 3.000, 1e-9);
  EXPECT_NEAR(sent[1].end_s, 3.006, 1e-9);
  EXPECT_EQ(sent[1].bytes, 4000);
  for (const Event& event : sent)
    EXPECT_EQ(std::pair(event.rank, event.step), std::pair(0, std::int64_t{0}));
  EXPECT_NEAR(step_seconds(trace).at(0), 3.006, 1e-9);
}

TEST(Simulate, WorkedExamplesOfTheBrief) {
  const Model small = model(0, {3, 2, 1}, {1, 1, 2}, 3, 1);
  EXPECT_DOUBLE_EQ(last_step(plan_of(small.profile, small.group("wfbp"), 2), small, 1), 14);
  EXPECT_DOUBLE_EQ(last_step(plan_of(small.profile, small.group("single"), 2), small, 1), 13);
  EXPECT_DOUBLE_EQ(last_step(plan_of(small.profile, small.group("mg_wfbp"), 2), small, 1), 13);
  EXPECT_DOUBLE_EQ(last_step(plan_of(small.profile, small.group("exact"), 2), small, 1), 11);
}

TEST(Simulate, IsTheGroupingsCostModelOnPlainDataParallelism) {
  Rng rng({.seed = 5});
  for (int i = 0; i < 300; ++i) {
    const Model one = test::random_model(rng, 12);
    for (const char* grouping : {"wfbp", "single", "exact"}) {
      const Grouping buckets = one.group(grouping);
      const Seconds predicted = predict_step_s(buckets, one.input());
      EXPECT_NEAR(last_step(plan_of(one.profile, buckets, 2), one, 2), predicted, 1e-9 * predicted)
          << grouping << " of instance " << i;
    }
  }
}

// One executor, five methods that differ in the fields of their exchanges alone.
TEST(Simulate, FiveMethods) {
  const Model layers = twenty_layers();
  EXPECT_NEAR(last_step(plan_of(layers.profile, layers.group("single"), 2), layers), 108.5, 0.05);
  Plan wfbp = plan_of(layers.profile, layers.group("wfbp"), 2);
  EXPECT_NEAR(last_step(wfbp, layers), 85.7, 0.05);
  EXPECT_NEAR(last_step(plan_of(layers.profile, merged(layers.profile, 40), 2), layers), 76.1,
              0.05);
  Plan delayed = plan_of(layers.profile, layers.group("single"), 2);
  delayed.exchanges[0].need.lag = 1;
  EXPECT_NEAR(last_step(delayed, layers), 60.0, 0.05);
  // Needed by the next forward: in the order of starting no sooner than before, with what is needed
  // first in front sooner.
  for (Exchange& e : wfbp.exchanges) e.need = {.phase = Phase::step_begin, .lag = 1};
  EXPECT_NEAR(last_step(wfbp, layers), 85.7, 0.05);
  for (Exchange& e : wfbp.exchanges) e.priority = e.id;  // bucket 0 holds the last tensor
  const Seconds urgent = last_step(wfbp, layers);
  for (Exchange& e : wfbp.exchanges) e.chunk = 40;
  const Seconds in_chunks = last_step(wfbp, layers);
  EXPECT_LT(urgent, 80);
  EXPECT_LT(in_chunks, urgent);
  EXPECT_GE(in_chunks, 60);
}

TEST(Simulate, AnExchangeInEveryFourthStep) {
  Model two = model(1, {1, 1}, {10, 10}, 1, 1);
  Plan plan = plan_of(two.profile, two.group("single"), 2);
  plan.exchanges[0].start.every = 4;
  plan.exchanges[0].start.offset = 1;
  const auto steps = step_seconds(simulate(plan, two.profile, two.cluster, {.steps = 8}));
  const std::vector<Seconds> expected{3, 3, 3, 24, 3, 3, 3, 24};
  ASSERT_EQ(steps.size(), expected.size());
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(steps[i], expected[i], 1e-9) << i;
}

TEST(Simulate, CodecsTakeTheirTimeFromCompute) {
  Model two = model(1, {1, 1}, {10, 10}, 1, 1);
  Plan plan = plan_of(two.profile, two.group("single"), 2);
  plan.exchanges[0].form = parse_chain("ef|topk");
  plan.exchanges[0].payload = 2;
  two.profile.codecs["ef|topk"] = {.encode_bytes_per_s = 40, .decode_bytes_per_s = 80};
  // Payloads of this form do not add: each of the two ranks' is decoded.
  EXPECT_NEAR(last_step(plan, two, 1), 3 + 0.5 + 1 + 2 + 2 * 0.25, 1e-9);
  two.profile.codecs["ef|topk"] = {.encode_bytes_per_s = 20, .decode_bytes_per_s = 80};
  EXPECT_NEAR(last_step(plan, two, 1), 3 + 1 + 1 + 2 + 2 * 0.25, 1e-9);
}

TEST(Simulate, ASharedCoreSlowsComputeWhileBytesAreOnTheWire) {
  // Tensor 1 travels while tensor 0 is computed: 4 s of wire take half of the core.
  Model two = model(0, {6, 1}, {1, 4}, 0, 1);
  Plan plan = plan_of(two.profile, two.group("wfbp"), 2);
  EXPECT_NEAR(last_step(plan, two, 1), 1 + 6 + 1, 1e-9);
  two.cluster.links["all_reduce"][0].cpu_s_per_byte = 0.5;
  EXPECT_NEAR(last_step(plan, two, 1), 1 + 6 + 1, 1e-9) << "a core of its own";
  two.cluster.shared_core = true;
  EXPECT_NEAR(last_step(plan, two, 1), 1 + (4 + 4) + 1, 1e-9);
}

TEST(Simulate, EverybodyWaitsForTheSlowest) {
  Model two = model(2, {2, 2}, {1, 1}, 1, 1);
  const Plan plan = plan_of(two.profile, two.group("single"), 2);
  EXPECT_NEAR(last_step(plan, two), 6 + 3, 1e-9);
  two.cluster.speed = {1, 0.5};
  const Trace trace = simulate(plan, two.profile, two.cluster, {.steps = 2});
  EXPECT_NEAR(step_seconds(trace).back(), 12 + 3, 1e-9);
  EXPECT_EQ(std::count_if(trace.begin(), trace.end(), [](const Event& e) { return e.rank == 1; }),
            std::count_if(trace.begin(), trace.end(), [](const Event& e) { return e.rank == 0; }));
}

TEST(Simulate, JitterIsDrawnByRankAndCostsAStep) {
  Model four = model(2, {2, 2}, {1, 1}, 1, 1);
  four.cluster.ranks_per_level = {4};
  const Plan plan = plan_of(four.profile, four.group("single"), 4);
  const auto run = [&](std::uint64_t seed, double jitter) {
    return step_seconds(
        simulate(plan, four.profile, four.cluster, {.steps = 50, .seed = seed, .jitter = jitter}));
  };
  EXPECT_EQ(run(1, 0.1), run(1, 0.1));
  EXPECT_NE(run(1, 0.1), run(2, 0.1));
  const auto total = [](const std::vector<Seconds>& steps) {
    return std::accumulate(steps.begin(), steps.end(), 0.0);
  };
  EXPECT_GT(total(run(1, 0.1)), total(run(1, 0)) + 50 * 6 * 0.1 * 0.7) << "the slowest of four";
}

TEST(Simulate, NothingGetsFasterOnAWorseNetwork) {
  Rng rng({.seed = 9});
  for (int i = 0; i < 200; ++i) {
    Model one = test::random_model(rng, 10);
    const Plan plan = plan_of(one.profile, one.group("exact"), 2);
    const Seconds before = last_step(plan, one, 2);
    Link& link = one.cluster.links["all_reduce"][0];
    link.bytes_per_s /= 1.5;
    const Seconds slower = last_step(plan, one, 2);
    EXPECT_GE(slower, before * (1 - 1e-12));
    link.latency_s = link.latency_s * 1.5 + 1e-6;
    EXPECT_GE(last_step(plan, one, 2), slower * (1 - 1e-12));
  }
}

TEST(Simulate, EveryEventOnceAndInOrder) {
  const Model layers = twenty_layers();
  const Plan plan = plan_of(layers.profile, layers.group("wfbp"), 2);
  const Trace trace = simulate(plan, layers.profile, layers.cluster, {.steps = 3});
  EXPECT_EQ(trace.size(), 3u * (20 + 20 + 20 + 1));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    EXPECT_LE(trace[i].begin_s, trace[i].end_s);
    if (i > 0) {
      EXPECT_LE(trace[i - 1].end_s, trace[i].end_s + 1e-9);
    }
    if (trace[i].kind == OpKind::exchange) {
      EXPECT_EQ(trace[i].bytes, plan.exchanges[static_cast<std::size_t>(trace[i].index)].payload);
    }
  }
}

TEST(Simulate, BytesAndTimeByAlgorithm) {
  Cluster four{.ranks_per_level = {4}};
  four.links["all_reduce"] = {{.latency_s = 1, .bytes_per_s = 10}};
  Exchange e{.payload = 100};
  EXPECT_EQ(algorithm_of(e), "direct");
  EXPECT_EQ(cost_of(e, four, 4).sent, 150);
  EXPECT_DOUBLE_EQ(cost_of(e, four, 4).wire_s, 10);
  e.form = parse_chain("ef|topk");
  EXPECT_EQ(algorithm_of(e), "gather");
  EXPECT_EQ(cost_of(e, four, 4).sent, 300);
  EXPECT_DOUBLE_EQ(cost_of(e, four, 4).wire_s, 20) << "twice the bytes of an all_reduce";
  four.links["gather"] = {{.latency_s = 1, .bytes_per_s = 50}};
  EXPECT_DOUBLE_EQ(cost_of(e, four, 4).wire_s, 2) << "as measured";
  e.algorithm = "shard";
  EXPECT_EQ(cost_of(e, four, 4).sent, 150);
}

TEST(Simulate, RefusesWhatItCannotRun) {
  const Model two = model(1, {1, 1}, {10, 10}, 1, 1);
  const Plan plan = plan_of(two.profile, two.group("single"), 2);
  const auto run = [&](const Plan& with, const SimOptions& options) {
    simulate(with, two.profile, two.cluster, options);
  };
  TW_EXPECT_THROW(run(plan, {.steps = 0}), ConfigError, "steps must be at least 1, got 0");
  TW_EXPECT_THROW(run(plan, {.jitter = -1}), ConfigError, "jitter must be in [0, 1], got -1");
  Plan early = plan;
  early.exchanges[0].need = {.phase = Phase::step_begin};
  TW_EXPECT_THROW(run(early, {}), ConfigError, "exchange 0");
  Plan other = plan;
  other.tensors[0].name = "another";
  TW_EXPECT_THROW(run(other, {}), ConfigError, "'another'");
}

TEST(Simulate, AThousandLayersOnSixtyFourRanks) {
  Model large = model(0, std::vector<double>(1000, 1e-4), std::vector<int>(1000, 4000), 1e-4, 1e-9);
  large.cluster.ranks_per_level = {64};
  const Plan plan = plan_of(large.profile, large.group("wfbp"), 64);
  const Trace trace = simulate(plan, large.profile, large.cluster);
  EXPECT_EQ(trace.size(), 3001u) << "equal ranks are simulated once";
}

}  // namespace thinwire
