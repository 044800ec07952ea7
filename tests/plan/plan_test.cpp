// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/plan.h"

#include <gtest/gtest.h>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire {
namespace {

/// Two tensors, two buckets, three ranks.
Plan sound() {
  const std::vector<TensorDesc> tensors{{"w", DType::f32, {2, 3}}, {"b", DType::f32, {3}}};
  Plan plan = data_parallel_plan(tensors, {{{{1, 0, 3}}}, {{{0, 0, 6}}}}, 3, {});
  plan.groups.push_back({.ranks = {0, 2}});
  plan.schedule = {{{OpKind::forward, 0, 0, {}}, {OpKind::exchange, 1, 0, {0}}}, {}, {}};
  plan.shards = {{{0, 1, 2, 2}}};
  plan.halos = {{{{{1, 2, 0.5F}}, {}, {}}, {{}, {4}, {}}}};
  return plan;
}

void refused(const std::function<void(Plan&)>& change, const std::string& words) {
  Plan plan = sound();
  change(plan);
  TW_EXPECT_THROW(validate(plan, 3), ConfigError, words);
}

TEST(DataParallelPlan, OneMeanOfEachBucket) {
  const Plan plan = sound();
  validate(plan, 3);
  ASSERT_EQ(plan.exchanges.size(), 3u);
  const Exchange& e = plan.exchanges[1];
  EXPECT_EQ(e.id, 1);
  EXPECT_EQ(e.bucket, 1);
  EXPECT_EQ(e.what, Role::gradient);
  EXPECT_EQ(e.pattern, Pattern::all_reduce);
  EXPECT_EQ(e.combine, Combine::mean);
  EXPECT_EQ(e.start.phase, Phase::grad_ready);
  EXPECT_EQ(e.need.phase, Phase::update_begin);
  EXPECT_EQ(e.payload, 24);
  EXPECT_EQ(plan.groups[0].ranks, (std::vector<Rank>{0, 1, 2}));
  const Exchange& header = plan.exchanges[2];
  EXPECT_EQ(step_header(plan), 2);
  EXPECT_EQ(header.what, Role::statistic);
  EXPECT_EQ(header.pattern, Pattern::all_gather);
  EXPECT_EQ(header.payload, 8 * 6) << "4 words, and a word for each of the two sets of bits";
  EXPECT_EQ(step_header_words(64), 6u);
  EXPECT_EQ(step_header_words(65), 8u);
  const auto form = parse_chain("ef|topk{ratio=0.01}");
  EXPECT_EQ(data_parallel_plan(plan.tensors, plan.grouping, 2, form).exchanges[0].payload, 4 + 1)
      << "one value of six, and a bitmap";
  const auto unknown = parse_chain("of_a_program");
  EXPECT_EQ(data_parallel_plan(plan.tensors, plan.grouping, 2, unknown).exchanges[0].payload, 0)
      << "nobody has said";
}

TEST(PlanBuilder, ADeclarationIsOneExchangeABucket) {
  const std::vector<TensorDesc> tensors{{"w", DType::f32, {2, 3}}, {"b", DType::f32, {3}}};
  PlanBuilder builder({.tensors = tensors,
                       .grouping = {{{{1, 0, 3}}}, {{{0, 0, 6}}}},
                       .ranks = 2,
                       .algorithm = "gather"});
  const When average{.phase = Phase::update_end, .every = 4, .offset = 1};
  EXPECT_EQ(builder.add(Role::parameter, Pattern::all_reduce, Combine::mean, average,
                        {.phase = Phase::step_begin, .every = 4, .lag = 1}),
            0);
  EXPECT_EQ(step_header(builder.plan()), -1) << "no gradients, no header";
  EXPECT_EQ(declare_gradient_mean(builder), 1);
  TW_EXPECT_THROW(declare_gradient_mean(builder), ConfigError,
                  "declares the all_reduce of gradients at grad_ready twice");
  Plan plan = builder.plan();
  validate(plan, 2);
  ASSERT_EQ(plan.exchanges.size(), 5u);
  EXPECT_EQ(plan.exchanges[0].algorithm, "gather");
  EXPECT_EQ(exchanges_of(plan, builder.declared()[0]), (std::vector<int>{0, 1}));
  EXPECT_EQ(exchanges_of(plan, builder.declared()[1]), (std::vector<int>{2, 3}));
  EXPECT_EQ(step_header(plan), 4);
  add_step_header(plan);
  EXPECT_EQ(plan.exchanges.size(), 5u) << "one is enough";
  plan.exchanges[1].bucket = 0;
  TW_EXPECT_THROW(exchanges_of(plan, builder.declared()[0]), ConfigError,
                  "the plan has 2 exchanges for the all_reduce of parameters at update_end of "
                  "bucket 0; the strategy needs one");
}

TEST(KnownFailures, KF52_ExchangeRankAndWorldSizeAreNamed) {
  refused(
      [](Plan& p) {
        p.groups[1].ranks = {0, 3};
        p.exchanges[1].group = 1;
      },
      "exchange 1: its group 1 has rank 3, but the world size is 3 (ranks 0 to 2)");
}

TEST(Validate, RefusesTensorsAndGroupings) {
  refused([](Plan& p) { p.tensors[0].shape = {-2}; }, "tensor 0 ('w'): the shape [-2] is negative");
  refused([](Plan& p) { p.grouping[0].slices[0].end = 2; },
          "element 2 of tensor 1 ('b') stands in no bucket");
  refused([](Plan& p) { p.grouping[0].slices[0].tensor = 7; }, "tensor must be in [0, 2), got 7");
  refused([](Plan& p) { p.grouping[1].slices.push_back({1, 0, 3}); }, "stands in two buckets");
  refused([](Plan& p) { p.grouping.emplace_back(); }, "bucket 2 has no slices");
}

TEST(Validate, RefusesGroups) {
  refused([](Plan& p) { p.groups[0].ranks = {}; }, "exchange 0: its group 0 has no ranks");
  refused([](Plan& p) { p.groups[1].ranks = {2, 0}; }, "group 1: ranks must rise, got 0 after 2");
  refused([](Plan& p) { p.groups[1].ranks = {-1}; }, "group 1 has rank -1");
  TW_EXPECT_THROW(validate(sound(), 0), ConfigError, "at least 1 rank, got 0");
  TW_EXPECT_THROW(validate(sound(), 2), ConfigError, "has rank 2, but the world size is 2");
}

TEST(Validate, RefusesExchanges) {
  refused([](Plan& p) { p.exchanges[1].id = 4; }, "exchange 1: its id must be its position, got 4");
  refused([](Plan& p) { p.exchanges[1].bucket = 2; },
          "exchange 1: bucket must be in [-1, 2), got 2");
  refused([](Plan& p) { p.exchanges[0].bucket = -1; }, "a gradient exchange needs a bucket");
  refused([](Plan& p) { p.exchanges[0].group = 2; }, "exchange 0: group must be in [0, 2), got 2");
  refused([](Plan& p) { p.exchanges[0].combine = Combine::concat; },
          "all_reduce cannot combine by concat");
  refused([](Plan& p) { p.exchanges[0].pattern = Pattern::broadcast; },
          "broadcast cannot combine by mean");
  refused([](Plan& p) { p.exchanges[0].payload = -1; }, "payload_bytes must be at least 0, got -1");
  refused([](Plan& p) { p.exchanges[0].chunk = -8; }, "chunk_bytes must be at least 0, got -8");
  refused([](Plan& p) { p.exchanges[0].algorithm = "gater"; }, "did you mean 'gather'?");
}

TEST(Validate, RefusesTimes) {
  refused([](Plan& p) { p.exchanges[0].start.every = 0; }, "start every must be at least 1, got 0");
  refused([](Plan& p) { p.exchanges[0].start.offset = 1; },
          "start offset must be in [0, every = 1), got 1");
  refused([](Plan& p) { p.exchanges[0].need.lag = -1; }, "need lag must be at least 0, got -1");
  refused([](Plan& p) { p.exchanges[0].start.lag = 1; }, "lag belongs to need, got start lag 1");
  refused([](Plan& p) { p.exchanges[0].need.phase = Phase::step_begin; },
          "needed at step_begin before it starts at grad_ready");
  Plan delayed = sound();
  delayed.exchanges[0].need = {.phase = Phase::step_begin, .lag = 1};
  validate(delayed, 3);
}

TEST(Validate, RefusesMaps) {
  refused([](Plan& p) { p.schedule.pop_back(); }, "schedule: 3 ranks need as many lists, got 2");
  refused([](Plan& p) { p.schedule[0][0].index = -1; },
          "schedule of rank 0, entry 0: index and microbatch");
  refused([](Plan& p) { p.schedule[0][1].index = 3; }, "entry 1: there is no exchange 3");
  refused([](Plan& p) { p.schedule[0][1].after = {1}; }, "only come after earlier entries, got 1");
  refused([](Plan& p) { p.shards[0].owner[2] = 3; },
          "shard map 0: owner 3 is no rank of a world of 3");
  refused([](Plan& p) { p.halos[0].send.pop_back(); }, "3 ranks need as many send and recv lists");
  refused([](Plan& p) { p.halos[0].send[0][0].row = -1; }, "row and item must be at least 0");
  refused([](Plan& p) { p.halos[0].recv[1][0] = -4; }, "item must be at least 0, got -4");
}

TEST(Validate, ChecksAgainstTheCluster) {
  const auto m = test::model(0, {1}, {1}, 1, 1);
  TW_EXPECT_THROW(validate(sound(), m.cluster), ConfigError, "the world size is 2");
  TW_EXPECT_THROW(validate(sound(), Cluster{}), ConfigError, "cluster: ranks_per_level");
}

TEST(PlanJson, WritesOneExchangeALineAndReadsItBack) {
  Plan plan = sound();
  plan.exchanges[0].form = parse_chain("ef|topk{ratio=0.01}");
  plan.groups[1].topology = parse_spec("ring{hops=2}");
  const std::string text = to_json(plan);
  EXPECT_EQ(plan_from_json(text), plan);
  EXPECT_NE(text.find("\n    {\"id\":1,"), std::string::npos) << text;
}

TEST(PlanJson, DefaultsMayBeLeftOut) {
  Plan plan = plan_from_json(R"({
    "thinwire_plan": 1,
    "tensors": [{"name": "w", "shape": [2, 3]}, {"name": "b", "shape": [3]}],
    "grouping": [[[1, 0, 3]], [[0, 0, 6]]],
    "groups": [{"ranks": [0, 1, 2]}],
    "exchanges": [{"bucket": 0, "payload_bytes": 12}, {"bucket": 1, "payload_bytes": 24}]})");
  add_step_header(plan);
  EXPECT_EQ(first_difference(plan, data_parallel_plan(sound().tensors, sound().grouping, 3, {})),
            "");
}

TEST(PlanJson, ErrorsNameThePlace) {
  const auto refused_file = [](const std::string& rest, const std::string& words) {
    TW_EXPECT_THROW(plan_from_json("{\"thinwire_plan\": 1, " + rest + "}", "p.json"), DataError,
                    words);
  };
  refused_file(R"("exchanges": [{"bucket": 0, "patern": "mix"}])",
               "p.json: exchange 0: unknown key 'patern'; did you mean 'pattern'?");
  refused_file(R"("exchanges": [{"bucket": 0, "pattern": "all_redce"}])",
               "exchange 0: unknown pattern 'all_redce'; did you mean 'all_reduce'?");
  refused_file(R"("exchanges": [{"bucket": 0, "form": "ef|"}])",
               "exchange 0: form 'ef|': expected a name");
  refused_file(R"("exchanges": [{"bucket": 0, "start": {"phase": "never"}}])",
               "exchange 0: start: unknown phase");
  refused_file(R"("exchanges": [{"bucket": 1.5}])", "'bucket' has the wrong type: 1.5");
  refused_file(R"("grouping": [[[1, 2]]])",
               "bucket 0: a slice is [tensor, begin, end], found [1,2]");
  refused_file(R"("grouping": [3])", "bucket 0: a list of [tensor, begin, end] was expected");
  refused_file(R"("groups": [{"ranks": "all"}])", "group 0: 'ranks' has the wrong type");
  TW_EXPECT_THROW(plan_from_json(R"({"thinwire_plan": 2})", "p"), DataError, "must be 1, got 2");
  TW_EXPECT_THROW(plan_from_json("[]", "p"), DataError, "p: an object was expected, found array");
}

TEST(Digest, ChangesWithEveryPart) {
  const Plan plan = sound();
  EXPECT_EQ(digest(plan), digest(plan_from_json(to_json(plan))));
  const std::vector<std::function<void(Plan&)>> changes{
      [](Plan& p) { p.tensors[0].name = "v"; },
      [](Plan& p) { p.tensors[0].dtype = DType::f64; },
      [](Plan& p) { std::swap(p.grouping[0], p.grouping[1]); },
      [](Plan& p) { p.groups[1].ranks = {0, 1}; },
      [](Plan& p) { p.groups[1].topology.name = "ring"; },
      [](Plan& p) { p.exchanges[1].what = Role::delta; },
      [](Plan& p) { p.exchanges[1].pattern = Pattern::push_pull; },
      [](Plan& p) { p.exchanges[1].combine = Combine::sum; },
      [](Plan& p) { p.exchanges[1].form = parse_chain("none"); },
      [](Plan& p) { p.exchanges[1].need.lag = 1; },
      [](Plan& p) { p.exchanges[1].start.every = 2; },
      [](Plan& p) { p.exchanges[1].payload = 5; },
      [](Plan& p) { p.exchanges[1].algorithm = "tree"; },
      [](Plan& p) { p.exchanges[1].chunk = 5; },
      [](Plan& p) { p.exchanges[1].priority = 5; },
      [](Plan& p) { p.schedule[0][0].microbatch = 1; },
      [](Plan& p) { p.shards[0].owner[0] = 1; },
      [](Plan& p) { p.halos[0].send[0][0].weight = 1; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Plan other = plan;
    changes[i](other);
    EXPECT_NE(digest(other), digest(plan)) << "change " << i;
    EXPECT_NE(first_difference(plan, other), "") << "change " << i;
    EXPECT_FALSE(other == plan) << "change " << i;
  }
}

// The same bytes on every machine and in every build: a digest that drifts splits a group of ranks.
TEST(Digest, IsTheSameOnEveryMachine) { EXPECT_EQ(digest(sound()), digest(sound())); }

TEST(FirstDifference, SaysWhereInWords) {
  const Plan plan = sound();
  EXPECT_EQ(first_difference(plan, plan), "");
  Plan other = plan;
  other.exchanges[1].bucket = 0;
  EXPECT_EQ(first_difference(plan, other), "exchange 1: bucket 1 against 0");
  other = plan;
  other.exchanges[1].need.lag = 2;
  EXPECT_EQ(first_difference(plan, other), "exchange 1: need lag 0 against 2");
  other = plan;
  other.exchanges[0].algorithm = "shard";
  EXPECT_EQ(first_difference(plan, other), "exchange 0: algorithm (none) against shard");
  other = plan;
  other.tensors[0].shape = {3, 2};
  EXPECT_EQ(first_difference(plan, other), "tensor 0 ('w'): shape [2,3] against [3,2]");
  other = plan;
  other.tensors.push_back({"extra", DType::f32, {1}});
  EXPECT_EQ(first_difference(plan, other), "2 tensors against 3");
  other = plan;
  other.grouping = {{{{1, 0, 3}, {0, 0, 6}}}};
  EXPECT_EQ(first_difference(plan, other), "bucket 0: [[1,0,3]] against [[1,0,3],[0,0,6]]");
}

}  // namespace
}  // namespace thinwire
