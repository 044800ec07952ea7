// SPDX-License-Identifier: Apache-2.0
// The runner of experiments, with a training that only pretends: what is run, kept, gone on with.
#include "thinwire/train/reproduce.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/report/scratch.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/report/curve.h"

namespace thinwire {
namespace {

using test::Scratch;
using Status = ArmRun::Status;

constexpr const char* kText = R"(title = "A title"
paper = "Somebody, 2020"
claim = "It learns as well."
seeds = 2
[base]
steps = 20
batch_size = 10
ranks = 2
[quick]
seeds = 1
steps = 8
[[arm]]
name = "dense"
[[arm]]
name = "seldom"
accumulate = 4
[[arm]]
name = "few"
form = "ef|topk{ratio=0.01}"
[[rule]]
holds = "within"
arm = "few"
of = "dense"
margin = 0.5
)";

Experiment sample() { return parse_experiment(kText, "sample.toml"); }

struct Pretended {
  std::vector<std::string> names;
  std::function<void(const TrainConfig&)> before;
  int stop_after = -1;  ///< runs
  ReproduceJob job(const std::string& out) {
    return {.quick = false,
            .seeds = 0,
            .arms = {},
            .out = out,
            .train =
                [this](const TrainConfig& config) {
                  names.push_back(config.name);
                  if (before) before(config);
                  TrainOutcome outcome;
                  outcome.summary.test_accuracy = 0.8;
                  outcome.summary.test_loss = 0.5;
                  outcome.summary.wire_bytes_per_step = 4000;
                  outcome.data = "made by hand";
                  if (static_cast<int>(names.size()) - 1 == stop_after) outcome.stop_signal = 2;
                  return outcome;
                },
            .begin = nullptr,
            .say = nullptr};
  }
};

TEST(Reproduce, ArmsOverBaseAndQuickBetween) {
  const Experiment e = sample();
  const TrainConfig dense = config_of(e, e.arm("dense"), 7, false);
  EXPECT_EQ(dense.steps, 20);
  EXPECT_EQ(dense.seed, 7);
  EXPECT_EQ(dense.comm, "local");
  EXPECT_EQ(config_of(e, e.arm("few"), 1, false).form, "ef|topk{ratio=0.01}");
  const TrainConfig seldom = config_of(e, e.arm("seldom"), 1, true);
  EXPECT_EQ(seldom.steps, 2) << "as many samples in a quarter of the updates";
  EXPECT_EQ(seldom.batch_size, 40);
}

TEST(Reproduce, SeedBySeedAndKept) {
  const Scratch scratch;
  Pretended pretended;
  const Reproduced done = reproduce(sample(), pretended.job(scratch.file("out")));
  EXPECT_EQ(pretended.names,
            (std::vector<std::string>{"dense-seed1", "seldom-seed1", "few-seed1", "dense-seed2",
                                      "seldom-seed2", "few-seed2"}));
  ASSERT_EQ(done.measured.runs.size(), 6U);
  EXPECT_DOUBLE_EQ(done.measured.find("dense", 2)->bytes_per_step, 4000);
  EXPECT_DOUBLE_EQ(done.measured.find("seldom", 2)->bytes_per_step, 1000);
  EXPECT_EQ(done.measured.command, "thinwire reproduce sample");
  const std::string file = scratch.file("out/measured.json");
  EXPECT_EQ(to_json(measured_from_json(read_json(file), file)).at("runs"),
            to_json(done.measured).at("runs"));
  write_outcome(sample(), done.measured, scratch.file("out"));
  for (const char* name : {"report.html", "report.md", "result.json"})
    EXPECT_TRUE(std::filesystem::is_regular_file(scratch.file("out/") + name)) << name;
}

TEST(Reproduce, InPiecesGoesOnWhereItWas) {
  const Scratch scratch;
  Pretended pretended;
  ReproduceJob job = pretended.job(scratch.path());
  job.arms = {"few"};
  reproduce(sample(), job);
  EXPECT_EQ(pretended.names, (std::vector<std::string>{"few-seed1", "few-seed2"}));
  pretended.names.clear();
  const Reproduced all = reproduce(sample(), pretended.job(scratch.path()));
  EXPECT_EQ(pretended.names, (std::vector<std::string>{"dense-seed1", "seldom-seed1", "dense-seed2",
                                                       "seldom-seed2"}));
  EXPECT_EQ(all.measured.runs.size(), 6U);
}

TEST(Reproduce, InterruptedKeepsWholeRunsOnly) {
  const Scratch scratch;
  Pretended pretended;
  pretended.stop_after = 1;
  const Reproduced stopped = reproduce(sample(), pretended.job(scratch.path()));
  EXPECT_EQ(stopped.stop_signal, 2);
  const std::string file = scratch.file("measured.json");
  const Measured kept = measured_from_json(read_json(file), file);
  ASSERT_EQ(kept.runs.size(), 1U);
  EXPECT_EQ(kept.runs[0].arm, "dense");
}

TEST(Reproduce, FailedAndDivergedArmsAreSaidAndTheOthersGoOn) {
  const Scratch scratch;
  Pretended pretended;
  pretended.before = [](const TrainConfig& config) {
    if (config.name == "few-seed1") throw DivergedError("no number");
    if (config.name == "dense-seed2") throw Error("out of memory");
  };
  const Reproduced done = reproduce(sample(), pretended.job(scratch.path()));
  ASSERT_EQ(done.measured.runs.size(), 6U);
  EXPECT_EQ(done.measured.find("few", 1)->status, Status::diverged);
  EXPECT_EQ(done.measured.find("dense", 2)->status, Status::failed);
  EXPECT_EQ(done.measured.find("dense", 2)->why, "out of memory");
  // What failed is tried again, what diverged is a result.
  pretended.names.clear();
  pretended.before = nullptr;
  const Reproduced again = reproduce(sample(), pretended.job(scratch.path()));
  EXPECT_EQ(pretended.names, std::vector<std::string>{"dense-seed2"});
  EXPECT_EQ(again.measured.find("dense", 2)->status, Status::finished);
}

TEST(Reproduce, OtherSettingsDoNotMixInOneFolder) {
  const Scratch scratch;
  Pretended pretended;
  reproduce(sample(), pretended.job(scratch.path()));
  std::string text = kText;
  text.replace(text.find("0.01"), 4, "0.02");
  TW_EXPECT_THROW(reproduce(parse_experiment(text, "sample.toml"), pretended.job(scratch.path())),
                  ConfigError, "holds few-seed1 with other settings; take another --out");
  ReproduceJob quick = pretended.job(scratch.path());
  quick.quick = true;
  TW_EXPECT_THROW(reproduce(sample(), quick), ConfigError, "holds the full form");
}

TEST(Reproduce, WrongOptionsNameFileLineAndRule) {
  const auto refused = [](const std::string& before, const std::string& after,
                          const std::string& words) {
    std::string text = kText;
    text.replace(text.find(before), before.size(), after);
    const Experiment e = parse_experiment(text, "sample.toml");
    TW_EXPECT_THROW(config_of(e, e.arm("few"), 1, false), ConfigError, words);
  };
  refused("ranks = 2", "rank = 2",
          "sample.toml, line 8: unknown option 'rank'; did you mean 'ranks'");
  refused("ranks = 2", "ranks = 0", "sample.toml, line 8: ranks: must be in [1, 4096], got 0");
  refused("ranks = 2", "seed = 3", "sample.toml, line 8: seed: is set by thinwire reproduce");
  refused("ranks = 2", "epochs = 3", "sample.toml, line 8: epochs: is set by");
  refused("ranks = 2", "comm = \"tcp\"", "arm few: comm: must end in local");
  refused("form = \"ef|topk{ratio=0.01}\"", "form = \"ef|\"", "line 17: arm few: form: ");
  refused("steps = 20", "augment = \"none\"", "steps must be set");
  refused("form =", "accumulate = 21\nform =", "accumulate must be at most steps = 20, got 21");
}

TEST(Experiments, AreFoundByNameAndPath) {
  ASSERT_FALSE(experiment_names().empty());
  EXPECT_EQ(find_experiment("error-feedback-dgc").name, "error-feedback-dgc");
  TW_EXPECT_THROW(find_experiment("error-feedback-dcg"), ConfigError,
                  "unknown experiment 'error-feedback-dcg'; did you mean 'error-feedback-dgc'");
  TW_EXPECT_THROW(find_experiment("nowhere/x.toml"), ConfigError, "nowhere/x.toml");
  const Scratch scratch;
  write_text(scratch.file("mine.toml"), kText);
  EXPECT_EQ(find_experiment(scratch.file("mine.toml")).name, "mine");
}

TEST(Experiments, AllParseAndTheirOptionsAreTaken) {
  for (const auto& name : experiment_names()) {
    const ExperimentText file = experiment_text(name);
    if (experiment_kind(file.text, file.source) == "simulated") continue;
    const Experiment e = parse_experiment(file.text, file.source);
    EXPECT_EQ(e.name, name);
    EXPECT_GE(e.rules.size(), 1U) << name;
    for (const Arm& arm : e.arms)
      for (const bool quick : {false, true})
        EXPECT_NO_THROW(config_of(e, arm, 1, quick)) << name << ", " << arm.name;
  }
}

}  // namespace
}  // namespace thinwire
