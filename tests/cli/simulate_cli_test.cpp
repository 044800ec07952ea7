// SPDX-License-Identifier: Apache-2.0
// thinwire simulate, run as a program on a plan that thinwire plan has written.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/tool.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/json.h"
#include "thinwire/report/trace_json.h"

namespace thinwire::test {
namespace {

const std::string kInputs =
    " --profile tests/plan/profiles/mlp.json "
    "--cluster tests/plan/profiles/cluster_2_ranks_1gbit.json ";

std::string scratch(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/thinwire_simulate_cli";
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

TEST(SimulateCli, AgreesWithThePlanItRuns) {
  const Watchdog watchdog("SimulateCli");
  const std::string plan = scratch("plan.json"), trace = scratch("trace.json");
  const Said planned = tool("plan" + kInputs + "--grouping wfbp --json --out " + plan);
  ASSERT_EQ(planned.code, 0) << planned.text;
  const Json predicted = parse_json(planned.text, "plan");
  const Said said = tool("simulate " + plan + kInputs + "--json --steps 3 --trace " + trace);
  ASSERT_EQ(said.code, 0) << said.text;
  const Json json = parse_json(said.text, "simulate");
  EXPECT_EQ(json.at("clock"), "virtual");
  Seconds wfbp = 0;
  for (const Json& row : predicted.at("groupings"))
    if (row.at("grouping") == "wfbp") wfbp = row.at("predicted_step_s").get<Seconds>();
  // The plan has a step header on top of what groupings are compared by: one latency, a few bytes.
  const auto step_s = json.at("step_s").get<Seconds>();
  EXPECT_GT(step_s, wfbp);
  EXPECT_LT(step_s, wfbp + 3e-4);
  EXPECT_EQ(json.at("bytes_per_step").get<double>(), predicted.at("payload_bytes").get<double>());
  const TraceFile file = read_trace(trace);
  EXPECT_EQ(file.clock, TraceClock::virtual_time);
  EXPECT_EQ(std::count_if(file.events.begin(), file.events.end(),
                          [](const Event& e) { return e.kind == OpKind::update; }),
            3);
}

TEST(SimulateCli, SaysThatItsTimeIsVirtual) {
  const Watchdog watchdog("SimulateCli");
  const std::string plan = scratch("shown.json");
  ASSERT_EQ(tool("plan" + kInputs + "--out " + plan).code, 0);
  const Said said = tool("simulate " + plan + kInputs);
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.text.substr(0, 13), "virtual time,") << said.text;
}

TEST(SimulateCli, RefusesWhatIsMissingOrDoesNotFit) {
  const Watchdog watchdog("SimulateCli");
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const Said said = tool("simulate " + arguments + " 2>&1");
    EXPECT_EQ(said.code, 2) << said.text;
    EXPECT_NE(said.text.find(words), std::string::npos) << said.text;
  };
  refused("", "a plan file, --profile and --cluster are needed");
  const std::string plan = scratch("other.json");
  ASSERT_EQ(tool("plan" + kInputs + "--out " + plan).code, 0);
  refused(plan + kInputs + "--steps 0", "steps must be at least 1, got 0");
  refused(plan +
              " --profile tests/plan/profiles/resnet18.json"
              " --cluster tests/plan/profiles/cluster_2_ranks_1gbit.json",
          "the plan has 8 tensors, the profile 62");
}

}  // namespace
}  // namespace thinwire::test
