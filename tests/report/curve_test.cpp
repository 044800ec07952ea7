// SPDX-License-Identifier: Apache-2.0
// Simulated experiments as text: what is read and refused, how rules judge, what readers get. The
// points are made up.
#include "thinwire/report/curve.h"

#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

const std::string kHead = R"(kind = "simulated"
title = "A title"
paper = "Somebody, 2020"
claim = "It scales."
x = "ranks"
xs = [1, 2, 4]
shows = ["step_s"]
[base]
slope = 1
[[at]]
x = 4
slope = 3
[[arm]]
name = "flat"
start = 5
slope = 0
[[arm]]
name = "steep"
note = "rises & falls"
start = 1
)";
constexpr int kHeadLines = 20;

std::string rule(const std::string& holds, const std::string& more) {
  return "[[rule]]\nholds = \"" + holds + "\"\nvalue = \"step_s\"\n" + more;
}
const std::string kCrosses = rule("crosses", "arm = \"steep\"\nof = \"flat\"\n");

/// step_s = start + slope * ranks
PointValues line(const std::map<std::string, std::string>& options) {
  if (options.contains("wrong")) throw ConfigError("curve: wrong is unknown");
  return {{"step_s", std::stod(options.at("start")) +
                         std::stod(options.at("slope")) * std::stod(options.at("ranks"))}};
}

Judgement judged(const std::string& rules, bool quick = false) {
  const CurveExperiment experiment = parse_curve(kHead + rules, "some/thing.toml");
  return judge(experiment, evaluate(experiment, {}, quick, line));
}
RuleState state(const std::string& holds, const std::string& more) {
  return judged(rule(holds, more)).rules.at(0).state;
}

void refused_curve(const std::string& text, const std::string& words) {
  TW_EXPECT_THROW(parse_curve(text, "some/thing.toml"), ConfigError, words.c_str());
}

TEST(CurveExperiment, OptionsAreOfBaseOfTheXAndOfTheArm) {
  const CurveExperiment e = parse_curve(kHead + kCrosses, "some/thing.toml");
  EXPECT_EQ(e.name, "thing");
  using Map = std::map<std::string, std::string>;
  EXPECT_EQ(options_at(e, e.arm("steep"), 2),
            (Map{{"ranks", "2"}, {"slope", "1"}, {"start", "1"}}));
  EXPECT_EQ(options_at(e, e.arm("steep"), 4),
            (Map{{"ranks", "4"}, {"slope", "3"}, {"start", "1"}}));
  EXPECT_EQ(options_at(e, e.arm("flat"), 4), (Map{{"ranks", "4"}, {"slope", "0"}, {"start", "5"}}));
}

// flat is 5, 5, 5; steep is 2, 3, 13.
TEST(CurveRules, HoldWhereTheyShouldAndFailElsewhere) {
  const std::string steep = "arm = \"steep\"\n", flat = "arm = \"flat\"\n";
  const std::string than_flat = steep + "of = \"flat\"\n", than_steep = flat + "of = \"steep\"\n";
  EXPECT_EQ(state("crosses", than_flat), RuleState::holds);
  EXPECT_EQ(state("crosses", than_steep), RuleState::fails);
  EXPECT_EQ(state("never_above", than_flat), RuleState::fails);
  EXPECT_EQ(state("never_above", than_flat + "margin = 161\n"), RuleState::holds);
  EXPECT_EQ(state("never_above", than_flat + "margin = 159\n"), RuleState::fails);
  EXPECT_EQ(state("ratio_at", than_flat + "at = 1\nleast = 2.5\nmost = 2.5\n"), RuleState::holds);
  EXPECT_EQ(state("ratio_at", than_flat + "at = 1\nleast = 2.51\n"), RuleState::fails);
  EXPECT_EQ(state("value_at", steep + "at = 4\nleast = 13\nmost = 13\n"), RuleState::holds);
  EXPECT_EQ(state("value_at", steep + "at = 4\nmost = 12.9\n"), RuleState::fails);
  EXPECT_EQ(state("growth", steep + "least = 6.5\n"), RuleState::holds);
  EXPECT_EQ(state("growth", flat + "least = 1.01\n"), RuleState::fails);
  EXPECT_EQ(state("has_minimum", steep), RuleState::fails);
  EXPECT_EQ(judged(rule("has_minimum", steep)).shape, Shape::not_reproduced);
  EXPECT_EQ(judged(kCrosses + rule("has_minimum", steep)).shape, Shape::partly);
  EXPECT_EQ(judged(kCrosses).shape, Shape::reproduced);
}

TEST(CurveRules, AMinimumLiesBetweenTheEnds) {
  const std::string dips =
      kHead + "[[arm]]\nname = \"dips\"\nstart = 9\n" + rule("has_minimum", "arm = \"dips\"\n");
  const CurveExperiment experiment = parse_curve(dips, "dips.toml");
  const auto point = [](const std::map<std::string, std::string>& options) -> PointValues {
    return {{"step_s", options.at("ranks") == "2" ? 1.0 : 2.0}};
  };
  EXPECT_EQ(judge(experiment, evaluate(experiment, {}, false, point)).shape, Shape::reproduced);
  EXPECT_EQ(judge(experiment, evaluate(experiment, {}, true, point)).shape, Shape::reproduced);
}

TEST(CurveRules, AnArmThatWasLeftOutLeavesThemUnmeasured) {
  const CurveExperiment experiment = parse_curve(kHead + kCrosses, "some/thing.toml");
  const Judgement some = judge(experiment, evaluate(experiment, {"flat"}, false, line));
  EXPECT_EQ(some.shape, Shape::incomplete);
  EXPECT_EQ(some.rules.at(0).state, RuleState::unmeasured);
  TW_EXPECT_THROW(evaluate(experiment, {"flap"}, false, line), ConfigError,
                  "unknown arm 'flap'; did you mean 'flat'");
}

TEST(CurveExperiment, TheShortFormHasTheEndsAndWhatRulesLookAt) {
  const auto xs = [](const std::string& rules) {
    return evaluate(parse_curve(kHead + rules, "t.toml"), {}, true, line).xs;
  };
  EXPECT_EQ(xs(kCrosses), (std::vector<double>{1, 4}));
  EXPECT_EQ(xs(rule("value_at", "arm = \"flat\"\nat = 2\nleast = 0\n")),
            (std::vector<double>{1, 2, 4}));
}

TEST(CurveExperiment, WrongFilesAreRefusedWithTheirLine) {
  const std::string good = kHead + kCrosses;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string out = good;
    out.replace(out.find(from), from.size(), to);
    return out;
  };
  refused_curve(changed("\"simulated\"", "\"imagined\""), "kind must be trained or simulated");
  refused_curve(changed("xs = [1, 2, 4]", "xs = [1, 4, 2]"),
                "some/thing.toml, line 6: xs must be at least two numbers, rising");
  refused_curve(changed("claim =", "clam ="), "lacks the key 'claim'");
  refused_curve(changed("x = 4", "x = 3"), "3 is not among xs");
  refused_curve(changed("name = \"steep\"", "name = \"flat\""), "the arm 'flat' is there twice");
  refused_curve(changed("arm = \"steep\"", "arm = \"step\""), "unknown arm 'step'");
  refused_curve(changed("crosses", "cross"), "unknown rule 'cross'; did you mean 'crosses'");
  refused_curve(kHead + rule("growth", "arm = \"flat\"\n"), "growth needs least, most or both");
  refused_curve(kHead + rule("value_at", "arm = \"flat\"\nat = 7\nleast = 1\n"),
                "some/thing.toml, line " + std::to_string(kHeadLines + 1) + ": 7 is not among xs");
  refused_curve(kHead + rule("crosses", "arm = \"flat\"\nof = \"steep\"\nmost = 1\n"),
                "unknown key 'most'");
}

TEST(CurveExperiment, WhatAPointRefusesNamesItsPlace) {
  const CurveExperiment bad = parse_curve(kHead + "wrong = 1\n" + kCrosses, "some/thing.toml");
  TW_EXPECT_THROW(evaluate(bad, {}, false, line), ConfigError,
                  "some/thing.toml, line 17: arm steep, ranks 1: curve: wrong is unknown");
  const CurveExperiment other = parse_curve(
      kHead + "[[rule]]\nholds = \"has_minimum\"\narm = \"flat\"\nvalue = \"step\"\n", "t.toml");
  TW_EXPECT_THROW(evaluate(other, {}, false, line), ConfigError,
                  "t.toml, line 21: unknown value 'step'; did you mean 'step_s'");
}

TEST(CurveExperiment, KindsAreToldApart) {
  EXPECT_EQ(experiment_kind(kHead + kCrosses, "t.toml"), "simulated");
  EXPECT_EQ(experiment_kind("title = \"x\"", "t.toml"), "trained");
  TW_EXPECT_THROW(parse_experiment(kHead + kCrosses, "t.toml"), ConfigError,
                  "an experiment that trains has kind trained, got 'simulated'");
}

TEST(CurveOutcome, EveryFormSaysVirtualAndHasTheNumbers) {
  const CurveExperiment e = parse_curve(kHead + kCrosses, "some/thing.toml");
  const Curves curves = evaluate(e, {}, false, line);
  for (const std::string& text :
       {text_outcome(e, curves), markdown_outcome(e, curves), html_outcome(e, curves)}) {
    EXPECT_NE(text.find("irtual"), std::string::npos);
    EXPECT_NE(text.find("13 s"), std::string::npos) << text;
    EXPECT_NE(text.find("1 of 1 rules hold"), std::string::npos) << text;
  }
  EXPECT_NE(markdown_outcome(e, curves).find("| 4 | 5 s | 13 s |\n"), std::string::npos);
  const std::string page = html_outcome(e, curves);
  EXPECT_NE(page.find("<polyline"), std::string::npos);
  EXPECT_NE(page.find("rises &amp; falls"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  const Json json = json_outcome(e, curves);
  EXPECT_EQ(json.at("clock"), "virtual");
  EXPECT_EQ(json.at("verdict"), "reproduced");
  EXPECT_EQ(json.at("arms").at(1).at("points").at(2), (Json{{"step_s", 13.0}, {"ranks", 4.0}}));
}

TEST(CurveOutcome, ValuesHaveUnits) {
  EXPECT_EQ(value_text("step_s", 0.0123), "12.3 ms");
  EXPECT_EQ(value_text("sent_bytes", 1.5e6), "1.5 MB");
  EXPECT_EQ(value_text("samples_per_s", 1234.4), "1234");
  EXPECT_EQ(value_text("speedup", 7.98123), "7.981");
}

}  // namespace
}  // namespace thinwire
