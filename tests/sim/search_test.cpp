// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

using test::model;
using test::Model;

/// KF-23: ten tensors of a million values, backward 5 ms each, two ranks.
Model ten_tensors(double bits_per_s) {
  Model out = model(0, std::vector<double>(10, 0.005), std::vector<int>(10, 1), 50e-6, 1);
  for (TensorDesc& tensor : out.profile.params) {
    tensor.dtype = DType::f32;
    tensor.shape = {1000000};
  }
  out.cluster.links["all_reduce"][0].bytes_per_s = bits_per_s / 8;
  out.profile.codecs["topk{ratio=0.01}"] = {.encode_bytes_per_s = 0.2e9,
                                            .decode_bytes_per_s = 0.2e9};
  return out;
}

std::set<std::string> forms_in(const Plan& plan) {
  std::set<std::string> out;
  for (const Exchange& exchange : plan.exchanges)
    if (exchange.bucket >= 0) out.insert(to_string(std::span<const Spec>(exchange.form)));
  return out;
}

}  // namespace

TEST(KnownFailures, KF23_ACodecSlowerThanNoCodec) {
  const SearchOptions asked{.forms = {"topk{ratio=0.01}"}, .groupings = {"wfbp"}};
  const Model fast = ten_tensors(10e9);
  const Choice dense = search(fast.profile, fast.cluster, asked);
  EXPECT_EQ(dense.chosen.form, "none");
  EXPECT_EQ(forms_in(dense.plan), std::set<std::string>{"none"});
  EXPECT_NEAR(dense.chosen.step_s, 0.0535, 0.001);
  EXPECT_NE(dense.verdict.find("Do not compress"), std::string::npos) << dense.verdict;
  // By name: a plan whose buckets all have the form, and a report with both times.
  const Plan forced = data_parallel_plan(fast.profile.params, fast.group("wfbp"), 2,
                                         parse_chain("topk{ratio=0.01}"));
  const Seconds forced_s = steady_step_s(forced, fast.profile, fast.cluster);
  EXPECT_GE(forced_s, 0.2);
  const std::string text = explain(dense);
  EXPECT_NE(text.find("topk{ratio=0.01}"), std::string::npos) << text;

  const Model slow = ten_tensors(100e6);
  const Choice chosen = search(slow.profile, slow.cluster, asked);
  EXPECT_EQ(chosen.chosen.form, "topk{ratio=0.01}");
  EXPECT_LT(chosen.chosen.step_s, 1);
  EXPECT_NEAR(chosen.dense.step_s, 3.2, 0.05);
  EXPECT_NE(chosen.verdict.find("Send topk{ratio=0.01}"), std::string::npos) << chosen.verdict;
}

TEST(KnownFailures, KF21_ATensorThatGrowsIsLeftAsItIs) {
  // Factors of a small matrix are longer than it is; the two are buckets of their own.
  Model m = model(0, {1e-3, 1e-3}, {1, 1}, 1e-5, 1);
  m.profile.params = {{"small", DType::f32, {6, 6}}, {"large", DType::f32, {64, 64}}};
  m.cluster.links["all_reduce"][0].bytes_per_s = 1e5;
  m.profile.codecs["powersgd{rank=4}"] = {.encode_bytes_per_s = 1e9, .decode_bytes_per_s = 1e9};
  const Choice choice =
      search(m.profile, m.cluster, {.forms = {"powersgd{rank=4}"}, .groupings = {"wfbp"}});
  ASSERT_EQ(choice.chosen.form, "powersgd{rank=4}");
  EXPECT_EQ(choice.chosen.left_dense, 1u);
  EXPECT_EQ(choice.plan.exchanges[0].payload, 2048) << "large";
  EXPECT_EQ(choice.plan.exchanges[1].payload, 144) << "small";
  EXPECT_EQ(choice.plan.exchanges[1].form[0].name, "none");
}

TEST(KnownFailures, KF54_DegreeOne) {
  Model m = model(0, {1, 1, 1}, {4000, 8000, 12000}, 1e-3, 1e-6);
  m.cluster.ranks_per_level = {1};
  for (const std::string& grouping : groupings().names()) {
    const Choice choice = search(m.profile, m.cluster, {.groupings = {grouping}});
    EXPECT_NEAR(choice.chosen.step_s, 3, 1e-9) << grouping;
    EXPECT_EQ(choice.chosen.bytes_per_step, 0) << grouping;
  }
  Model two = model(0, {1, 1, 1}, {4000, 8000, 12000}, 1e-3, 1e-6);
  const Seconds plain = search(two.profile, two.cluster).chosen.step_s;
  two.cluster.ranks_per_level = {1, 2, 1};
  const Link link = two.cluster.links["all_reduce"][0];
  two.cluster.links["all_reduce"] = {link, link, link};
  EXPECT_NEAR(search(two.profile, two.cluster).chosen.step_s, plain, 1e-9);
}

TEST(Search, IsTheBestOfAllGroupingsWhereTheyCanBeCounted) {
  Rng rng({.seed = 11, .exchange = -1, .step = 0, .rank = 0});
  for (int instance = 0; instance < 200; ++instance) {
    const Model m = test::random_model(rng, 7);
    Seconds best = 1e300;
    test::each_grouping(m, [&](const Grouping& grouping) {
      const Plan plan = data_parallel_plan(m.profile.params, grouping, 2, {{.name = "none"}});
      best = std::min(best, steady_step_s(plan, m.profile, m.cluster));
    });
    const Choice choice = search(m.profile, m.cluster);
    EXPECT_GE(choice.chosen.step_s, best - 1e-9) << instance;
    EXPECT_LE(choice.chosen.step_s, 1.001 * best + 1e-9) << instance;
    EXPECT_LE(choice.bound_s, best + 1e-9) << instance;
  }
}

TEST(Search, QualityAdmitsForms) {
  EXPECT_EQ(forms_of(Quality::same, false), std::vector<std::string>{"none"});
  const auto with = forms_of(Quality::bounded, true), without = forms_of(Quality::bounded, false);
  const auto has = [](const auto& forms, const std::string& form) {
    return std::find(forms.begin(), forms.end(), form) != forms.end();
  };
  EXPECT_TRUE(has(with, "cast{f16}"));
  EXPECT_FALSE(has(with, "ef|topk{ratio=0.01}")) << "an optimizer's momentum counts twice";
  EXPECT_TRUE(has(without, "ef|topk{ratio=0.01}"));
  EXPECT_TRUE(has(forms_of(Quality::free, true), "ef|topk{ratio=0.01}"));
  for (const auto& form : forms_of(Quality::free, true)) {
    const auto chain = parse_chain(form);
    EXPECT_EQ(form, to_string(std::span<const Spec>(chain))) << "the key of its speed";
    EXPECT_TRUE(payload_bytes(chain, {}).has_value()) << form;
  }
  EXPECT_EQ(parse_quality("bounded"), Quality::bounded);
  TW_EXPECT_THROW(parse_quality("bound"), ConfigError, "bounded");
}

TEST(Search, TheDocumentHoldsWhatIsAdmitted) {
  const std::string text = read_text(TW_SOURCE "/docs/planning.md");
  for (const Admitted& one : admitted_forms()) {
    std::string form = one.form;
    if (const auto at = form.find('|'); at != std::string::npos) form.insert(at, 1, '\\');
    const std::string row = "| `" + form + "` | " +
                            (one.with_momentum ? "any" : "`sgd{momentum=0}`") + " | `" +
                            one.experiment + "`, arm `" + one.arm + "` | " + one.loss + " |";
    EXPECT_NE(text.find(row), std::string::npos) << row;
    EXPECT_NE(read_text(TW_SOURCE "/docs/experiments.md").find("| " + one.arm + " | "),
              std::string::npos)
        << one.arm;
  }
}

TEST(Search, SaysWhyAFormIsNoCandidate) {
  const Model m = ten_tensors(100e6);
  const Choice choice = search(m.profile, m.cluster, {.quality = Quality::free});
  const auto of = [&](const std::string& form) {
    for (const Considered& one : choice.others)
      if (one.form == form && one.step_s == 0) return one.note;
    return std::string();
  };
  EXPECT_NE(of("ef|sign").find("not been measured"), std::string::npos);
  EXPECT_NE(explain(choice).find("ef|sign: not considered"), std::string::npos);
  TW_EXPECT_THROW(search(m.profile, m.cluster, {.forms = {"topq"}}), ConfigError, "topk");
  TW_EXPECT_THROW(search(m.profile, m.cluster, {.forms = {"eff|topk"}}), ConfigError, "ef");
  TW_EXPECT_THROW(search(m.profile, m.cluster, {.groupings = {"wfpb"}}), ConfigError, "wfbp");
}

TEST(Search, KeepsWithinTheBytesAllowed) {
  const Model m = ten_tensors(10e9);
  SearchOptions options{.forms = {"topk{ratio=0.01}"}, .max_bytes_per_step = 2000000};
  const Choice choice = search(m.profile, m.cluster, options);
  EXPECT_EQ(choice.chosen.form, "topk{ratio=0.01}") << "slower, but allowed";
  EXPECT_LE(choice.chosen.bytes_per_step, 2000000);
  options.max_bytes_per_step = 1000;
  TW_EXPECT_THROW(search(m.profile, m.cluster, options), ConfigError, "the least");
}

TEST(Search, CompressesOnlyWhatComputationDoesNotHide) {
  // Nine tensors hide behind the next one's backward, the last one has nothing to hide behind.
  Model m = ten_tensors(10e9);
  m.profile.codecs["topk{ratio=0.01}"] = {.encode_bytes_per_s = 10e9, .decode_bytes_per_s = 10e9};
  const Choice choice =
      search(m.profile, m.cluster, {.forms = {"topk{ratio=0.01}"}, .groupings = {"wfbp"}});
  EXPECT_EQ(choice.chosen.form, "topk{ratio=0.01}");
  EXPECT_EQ(choice.chosen.left_dense, 9u);
  EXPECT_LT(choice.chosen.step_s, choice.dense.step_s);
}

TEST(Search, ALargerBatchIsAnAnswer) {
  const Model m = ten_tensors(1.6e9);  // 20 ms a tensor, four times its backward
  Profile profile = m.profile;
  profile.codecs["topk{ratio=0.01}"] = {.encode_bytes_per_s = 2e9, .decode_bytes_per_s = 2e9};
  const Choice choice = search(profile, m.cluster, {.forms = {"topk{ratio=0.01}"}});
  ASSERT_EQ(choice.chosen.form, "topk{ratio=0.01}");
  EXPECT_NE(choice.verdict.find("A local batch"), std::string::npos) << choice.verdict;
}

}  // namespace thinwire
