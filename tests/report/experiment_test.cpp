// SPDX-License-Identifier: Apache-2.0
// Definitions, statistics and verdicts, on numbers made by hand.
#include "thinwire/report/experiment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/statistics.h"

namespace thinwire {
namespace {

constexpr const char* kHead = R"(title = "A title"
paper = "Somebody, 2020"
claim = "It learns as well."
[base]
steps = 10
)";

const std::string kArms = R"([[arm]]
name = "dense"
[[arm]]
name = "few"
form = "ef|topk{ratio=0.01}"
learning_rate = 0.5
)";

Experiment with_rule(const std::string& rule) {
  return parse_experiment(kHead + kArms + "[[rule]]\n" + rule, "folder/sample.toml");
}

ArmRun run(const std::string& arm, std::int64_t seed, double accuracy, double bytes = 100) {
  ArmRun out{.arm = arm, .seed = seed, .why = "", .data = "made by hand"};
  out.test_accuracy = accuracy;
  out.test_loss = 1 - accuracy;
  out.bytes_per_step = bytes;
  out.step_s = 0.01;
  return out;
}

ArmRun broken(const std::string& arm, std::int64_t seed, ArmRun::Status status) {
  ArmRun out = run(arm, seed, 0);
  out.status = status;
  out.why = "it was made so";
  return out;
}

/// dense at 0.80 for every seed, few at 0.80 plus the differences.
Measured differences(const std::vector<double>& points) {
  Measured out;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto seed = static_cast<std::int64_t>(i + 1);
    out.runs.push_back(run("dense", seed, 0.80, 3200));
    out.runs.push_back(run("few", seed, 0.80 + points[i] / 100, 100));
  }
  return out;
}

RuleState state(const std::string& rule, const Measured& measured) {
  return judge(with_rule(rule), measured).rules.at(0).state;
}

const std::string kWithin = "holds = \"within\"\narm = \"few\"\nof = \"dense\"\nmargin = 0.5\n";
const std::string kBetter = "holds = \"better\"\narm = \"few\"\nof = \"dense\"\n";

TEST(Statistics, IntervalOfThreeValuesByHand) {
  // mean 2, deviation 1, 4.3027 / sqrt(3) = 2.4842
  const std::vector<double> values{1, 2, 3};
  const auto interval = mean_interval(values).value();
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_NEAR(interval.lower, 2 - 2.4842, 1e-4);
  EXPECT_NEAR(interval.upper, 2 + 2.4842, 1e-4);
  EXPECT_EQ(interval.count, 3);
}

TEST(Statistics, QuantilesOfTheTables) {
  EXPECT_NEAR(student_t95(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t95(4), 2.776, 1e-3);
  EXPECT_NEAR(student_t95(11), 2.2010, 2e-4);
  EXPECT_NEAR(student_t95(20), 2.0860, 1e-4);
  EXPECT_NEAR(student_t95(120), 1.9799, 1e-4);
  TW_EXPECT_THROW(student_t95(0), ConfigError, "at least 1, got 0");
}

TEST(Statistics, OneValueHasNoBoundAndNoneNothing) {
  const std::vector<double> one{0.25};
  const auto interval = mean_interval(one).value();
  EXPECT_TRUE(std::isinf(interval.lower) && std::isinf(interval.upper));
  EXPECT_FALSE(mean_interval({}).has_value());
  const std::vector<double> bad{1, std::nan("")};
  TW_EXPECT_THROW(mean_interval(bad), DataError, "no finite number");
}

TEST(ExperimentFile, HoldsWhatItSays) {
  const Experiment e = with_rule(kWithin);
  EXPECT_EQ(e.name, "sample");
  EXPECT_EQ(e.control, "dense");
  EXPECT_EQ(e.seeds, 5);
  ASSERT_EQ(e.arms.size(), 2U);
  ASSERT_EQ(e.arm("few").settings.size(), 2U);
  EXPECT_EQ(e.arm("few").settings[0].key, "form");
  EXPECT_EQ(e.arm("few").settings[0].value, "ef|topk{ratio=0.01}");
  EXPECT_EQ(e.arm("few").settings[1].value, "0.5");
  EXPECT_EQ(e.arm("few").settings[1].line, 11);
  EXPECT_DOUBLE_EQ(e.rules.at(0).limit, 0.5);
  EXPECT_EQ(options_text(e.arm("dense")), "as base");
}

TEST(ExperimentFile, RefusedWithFileLineAndRule) {
  const auto refused = [](const std::string& text, const std::string& words) {
    TW_EXPECT_THROW(parse_experiment(text, "e.toml"), ConfigError, words);
    TW_EXPECT_THROW(parse_experiment(text, "e.toml"), ConfigError, "e.toml, line ");
  };
  const std::string rule = "[[rule]]\n" + kWithin;
  refused("title = ", "e.toml, line 1");
  refused("paper = \"x\"\n", "lacks the key 'title'");
  refused("title = 3\n", "line 1: title must be a text");
  refused("titel = \"x\"\ntitle = \"x\"\npaper = \"x\"\nclaim = \"x\"\n[base]\n" + kArms + rule,
          "line 1: unknown key 'titel'; did you mean 'title'");
  refused("seeds = 0\n" + (kHead + kArms) + rule, "seeds must be a whole number in [1, 1000]");
  refused(kHead + rule, "lacks the key 'arm'");
  refused(kHead + kArms, "lacks the key 'rule'");
  refused(kHead + kArms + "[[arm]]\nname = \"few\"\n" + rule,
          "line 12: the arm 'few' is there twice");
  refused(kHead + kArms + "[[arm]]\nname = \"A b\"\n" + rule, "a-z, 0-9 and _");
  refused(kHead + kArms + "[[arm]]\nname = \"x\"\nform = [1]\n" + rule, "line 14: form: a text");
  refused(kHead + kArms + "[[rule]]\nholds = \"wthin\"\narm = \"few\"\n", "did you mean 'within'");
  refused(
      kHead + kArms + "[[rule]]\nholds = \"within\"\narm = \"fw\"\nof = \"dense\"\nmargin = 1\n",
      "line 12: unknown arm 'fw'; did you mean 'few'");
  refused(kHead + kArms + "[[rule]]\nholds = \"within\"\narm = \"few\"\nof = \"dense\"\n",
          "lacks the key 'margin'");
  refused(kHead + kArms + rule + "least = 3\n", "line 17: unknown key 'least'");
  refused(kHead + kArms + "[[rule]]\n" + kBetter + "margin = -1\n", "margin must be at least 0");
  refused(kHead + kArms + "[[rule]]\n" + kBetter + "metric = \"loss\"\n", "unknown metric 'loss'");
}

TEST(Judgement, WithinHoldsFailsOrIsUndecidedByItsInterval) {
  EXPECT_EQ(state(kWithin, differences({0.1, -0.1, 0.0})), RuleState::holds);
  EXPECT_EQ(state(kWithin, differences({-2.0, -2.1, -1.9})), RuleState::fails);
  EXPECT_EQ(state(kWithin, differences({-1.0, 0.0, 0.4})), RuleState::undecided);
  // The mean is above the limit and the lower end is not: -0.1 -+ 4.3027 * 0.3606 / sqrt(3).
  EXPECT_EQ(state(kWithin, differences({0.2, 0.0, -0.5})), RuleState::undecided);
  EXPECT_EQ(state(kWithin, differences({0.0})), RuleState::undecided) << "one seed decides nothing";
  EXPECT_EQ(state(kWithin, {}), RuleState::unmeasured);
}

TEST(Judgement, BetterNeedsMoreThanZero) {
  EXPECT_EQ(state(kBetter, differences({1.0, 1.2, 0.8})), RuleState::holds);
  EXPECT_EQ(state(kBetter, differences({0, 0, 0})), RuleState::undecided) << "equal is not better";
  EXPECT_EQ(state(kBetter, differences({-1.0, -1.2, -0.8})), RuleState::fails);
  EXPECT_EQ(state(kBetter + "margin = 2\n", differences({1.0, 1.2, 0.8})), RuleState::fails);
}

TEST(Judgement, LossIsInPerCentAndLowerIsBetter) {
  // dense has a loss of 0.20; 0.21 is 5 % worse, 0.19 is 5 % better.
  const std::string loss = kWithin + "metric = \"test_loss\"\n";
  EXPECT_EQ(state(loss, differences({-1, -1, -1})), RuleState::fails);
  EXPECT_EQ(state(loss, differences({1, 1, 1})), RuleState::holds);
  const Judgement judgement = judge(with_rule(loss), differences({-1, -1, -1}));
  EXPECT_NE(judgement.rules[0].sentence.find("-5.00 % of test loss"), std::string::npos)
      << judgement.rules[0].sentence;
}

TEST(Judgement, ADivergedArmFailsAndADivergedOtherIsBeaten) {
  Measured measured = differences({0.1, 0.0, 0.1});
  measured.runs[1] = broken("few", 1, ArmRun::Status::diverged);
  EXPECT_EQ(state(kWithin, measured), RuleState::fails);
  EXPECT_EQ(state(kBetter, measured), RuleState::fails);
  Measured other;
  for (const std::int64_t seed : {1, 2}) {
    other.runs.push_back(broken("dense", seed, ArmRun::Status::diverged));
    other.runs.push_back(run("few", seed, 0.8));
  }
  EXPECT_EQ(state(kBetter, other), RuleState::holds);
  EXPECT_EQ(state(kWithin, other), RuleState::unmeasured) << "there is nothing to compare with";
}

TEST(Judgement, FailedRunsAreLeftOutAndSaid) {
  Measured measured = differences({0.1, 0.0, 0.1, -0.1});
  measured.runs[1] = broken("few", 1, ArmRun::Status::failed);
  const RuleResult result = judge(with_rule(kWithin), measured).rules.at(0);
  EXPECT_EQ(result.state, RuleState::holds);
  EXPECT_NE(result.sentence.find("1 seeds are missing"), std::string::npos) << result.sentence;
  ASSERT_EQ(troubles(measured).size(), 1U);
  EXPECT_EQ(troubles(measured)[0], "few, seed 1: failed: it was made so");
}

TEST(Judgement, ReachesBytesAndDiverges) {
  const Measured measured = differences({-30, -31, -29});
  EXPECT_EQ(state("holds = \"reaches\"\narm = \"dense\"\nvalue = 79\n", measured),
            RuleState::holds);
  EXPECT_EQ(state("holds = \"reaches\"\narm = \"few\"\nvalue = 79\n", measured), RuleState::fails);
  const std::string ratio = "holds = \"bytes_ratio\"\narm = \"few\"\nof = \"dense\"\nleast = ";
  EXPECT_EQ(state(ratio + "32\n", measured), RuleState::holds);
  EXPECT_EQ(state(ratio + "32.1\n", measured), RuleState::fails);
  const std::string diverges = "holds = \"diverges\"\narm = \"few\"\nbelow = ";
  EXPECT_EQ(state(diverges + "52\n", measured), RuleState::holds);
  EXPECT_EQ(state(diverges + "50\n", measured), RuleState::fails) << "one seed reached 51";
}

TEST(Judgement, ShapeCountsRules) {
  const auto shape = [](double few) {
    const std::string text = kHead + kArms + "[[rule]]\n" + kWithin +
                             "[[rule]]\nholds = \"bytes_ratio\"\narm = \"few\"\nof = "
                             "\"dense\"\nleast = 20\n";
    return judge(parse_experiment(text, "s.toml"), differences({few, few, few}));
  };
  EXPECT_EQ(shape(0).shape, Shape::reproduced);
  EXPECT_EQ(shape(0).sentence, "reproduced: 2 of 2 rules hold");
  EXPECT_EQ(shape(-3).shape, Shape::partly);
  EXPECT_EQ(shape(-3).sentence, "partly reproduced: 1 of 2 rules hold, 1 fails");
  EXPECT_EQ(judge(with_rule(kWithin), differences({-3, -3.1, -3})).shape, Shape::not_reproduced);
  EXPECT_EQ(judge(parse_experiment(kHead + kArms + "[[rule]]\n" + kWithin + "[[rule]]\n" + kBetter,
                                   "s.toml"),
                  differences({-3, -3.1, -3}))
                .sentence,
            "not reproduced: 0 of 2 rules hold, 2 fail");
  EXPECT_EQ(judge(with_rule(kWithin), {}).shape, Shape::incomplete);
}

TEST(Outcome, TextSectionPageAndObjectSayTheSame) {
  const Experiment e = with_rule(kWithin);
  Measured measured = differences({-2.0, -2.1, -1.9});
  measured.command = "thinwire reproduce sample";
  for (const std::string& text :
       {text_outcome(e, measured), markdown_outcome(e, measured), html_outcome(e, measured)}) {
    EXPECT_NE(text.find("not reproduced"), std::string::npos) << text;
    EXPECT_NE(text.find("-2.00"), std::string::npos) << text;
    EXPECT_NE(text.find("It learns as well."), std::string::npos) << text;
  }
  const std::string section = markdown_outcome(e, measured);
  EXPECT_NE(section.find("    thinwire reproduce sample\n"), std::string::npos);
  EXPECT_NE(section.find("form=ef\\|topk{ratio=0.01}"), std::string::npos) << section;
  EXPECT_NE(section.find("| 78.00 | -2.00 [-2.25, -1.75] |"), std::string::npos) << section;
  const Json json = json_outcome(e, measured);
  EXPECT_EQ(json.at("verdict"), "not reproduced");
  EXPECT_NEAR(json.at("arms")[1].at("gain").at("points").get<double>(), -2, 1e-9);
  EXPECT_EQ(json.at("runs").size(), 6U);
  EXPECT_TRUE(json.at("arms")[0].at("gain").is_null()) << "the control has none to itself";
}

TEST(Outcome, ADivergedArmIsShownAndNotAveraged) {
  const Experiment e = with_rule(kWithin);
  Measured measured = differences({0, 0});
  measured.runs[1] = broken("few", 1, ArmRun::Status::diverged);
  const auto rows = summaries(e, measured);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].finished, 1);
  EXPECT_EQ(rows[1].diverged, 1);
  EXPECT_DOUBLE_EQ(rows[1].test_accuracy, 0.80);
  EXPECT_NE(text_outcome(e, measured).find("1, 1 diverged"), std::string::npos);
}

TEST(Measured, ComesBackFromItsJson) {
  Measured measured = differences({1, 2});
  measured.quick = true;
  measured.command = "thinwire reproduce sample --quick";
  measured.runs[1] = broken("few", 1, ArmRun::Status::diverged);
  const Measured again = measured_from_json(to_json(measured), "here");
  EXPECT_EQ(to_json(again).dump(), to_json(measured).dump());
  Json wrong = to_json(measured);
  wrong["runs"][0]["status"] = "lost";
  TW_EXPECT_THROW(measured_from_json(wrong, "here"), DataError, "here: status 'lost'");
  TW_EXPECT_THROW(measured_from_json(Json::object(), "here"), DataError, "here");
}

}  // namespace
}  // namespace thinwire
