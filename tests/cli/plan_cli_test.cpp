// SPDX-License-Identifier: Apache-2.0
// thinwire list and thinwire plan, run as programs: output, files, exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/tool.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/json.h"
#include "thinwire/plan/planners.h"

namespace thinwire::test {
namespace {

const std::string kMlp = "--profile tests/plan/profiles/mlp.json ";
const std::string kResnet = "--profile tests/plan/profiles/resnet18.json ";
const std::string kCluster = "--cluster tests/plan/profiles/cluster_2_ranks_1gbit.json ";

std::string scratch(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/thinwire_plan_cli";
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

void refused(const std::string& arguments, const std::string& words) {
  const Said said = tool(arguments + " 2>&1");
  EXPECT_EQ(said.code, 2) << arguments << "\n" << said.text;
  EXPECT_NE(said.text.find(words), std::string::npos) << arguments << "\n" << said.text;
}

TEST(ListCli, NamesEveryGroupingInEveryFormat) {
  const Watchdog watchdog("ListCli");
  const Json json = parse_json(tool("list --json").text, "list");
  const std::string table = tool("list").text, markdown = tool("list --markdown").text;
  EXPECT_EQ(markdown.substr(0, 16), "| kind | name | ");
  for (const auto& name : groupings().names()) {
    const Json row{{"kind", "grouping"}, {"name", name}, {"help", groupings().find(name).help}};
    EXPECT_NE(std::find(json.begin(), json.end(), row), json.end()) << name;
    EXPECT_NE(table.find("  " + name + " "), std::string::npos) << table;
    EXPECT_NE(markdown.find("| grouping | `" + name + "` | "), std::string::npos) << markdown;
  }
  EXPECT_EQ(tool("list groupings").text, tool("list grouping").text);
  refused("list groupin", "unknown kind 'groupin'; did you mean 'grouping'?");
}

TEST(PlanCli, PredictsEveryGroupingAndMarksTheChosen) {
  const Watchdog watchdog("PlanCli");
  const Said said = tool("plan " + kResnet + kCluster);
  EXPECT_EQ(said.code, 0);
  EXPECT_NE(said.text.find("62 tensors, 44.7 MB a rank and step, 2 ranks"), std::string::npos)
      << said.text;
  EXPECT_NE(said.text.find("predicted step"), std::string::npos);
  EXPECT_NE(said.text.find("\n* exact"), std::string::npos);
  for (const auto& name : groupings().names())
    EXPECT_NE(said.text.find(" " + name + " "), std::string::npos) << name;
}

TEST(PlanCli, JsonHoldsThePredictionsBestFirst) {
  const Said said = tool("plan " + kMlp + kCluster + "--grouping 'size_cap{bytes=25MiB}' --json");
  ASSERT_EQ(said.code, 0);
  const Json json = parse_json(said.text, "plan");
  EXPECT_EQ(get<int>(json, "ranks", "plan"), 2);
  EXPECT_EQ(get<std::string>(json, "grouping", "plan"), "size_cap{bytes=25MiB}");
  EXPECT_EQ(get<Bytes>(json, "payload_bytes", "plan"), 40'083'496 + 8 * 6)
      << "gradients and the step header";
  const auto& rows = json["groupings"];
  EXPECT_EQ(rows.size(), groupings().names().size() + 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double step_s = get<double>(rows[i], "predicted_step_s", "plan");
    EXPECT_GE(step_s, get<double>(json, "compute_s", "plan"));
    EXPECT_GT(get<int>(rows[i], "messages", "plan"), 0);
    if (i > 0) {
      EXPECT_GE(step_s, get<double>(rows[i - 1], "predicted_step_s", "plan"));
    }
  }
}

TEST(PlanCli, WritesAPlanThatChecks) {
  const std::string path = scratch("plan.json");
  for (const std::string& profile : {kMlp, kResnet})
    for (const auto& grouping : groupings().names()) {
      ASSERT_EQ(
          tool("plan " + profile + kCluster + "--grouping " + grouping + " --out " + path).code, 0);
      const Said said = tool("plan --check " + path + " --ranks 2");
      EXPECT_EQ(said.code, 0) << said.text;
      EXPECT_NE(said.text.find("valid for 2 ranks"), std::string::npos) << said.text;
    }
  const Json json = parse_json(tool("plan --json --check " + path + " " + kCluster).text, "check");
  EXPECT_TRUE(get<bool>(json, "valid", "check"));
  refused("plan --check " + path + " --ranks 1",
          "has rank 1, but the world size is 1 (ranks 0 to 0)");
}

TEST(KnownFailures, KF52_CheckNamesExchangeRankAndWorldSize) {
  const std::string path = scratch("wrong.json");
  write_text(path, R"({"thinwire_plan": 1, "tensors": [{"name": "w", "shape": [4]}],
    "grouping": [[[0, 0, 2]], [[0, 2, 4]]], "groups": [{"ranks": [0, 1, 2]}, {"ranks": [0, 3]}],
    "exchanges": [{"bucket": 0}, {"bucket": 1, "group": 1}]})");
  refused("plan --check " + path + " --ranks 3",
          "exchange 1: its group 1 has rank 3, but the world size is 3");
}

TEST(KnownFailures, KF53_PlanEndsWithAWordWhereItCannot) {
  const std::string one = scratch("one.json"), empty = scratch("empty.json");
  write_text(one,
             R"({"tensors": [{"name": "w", "shape": [1], "forward_s": 0, "backward_s": 0.001}]})");
  const Json json = parse_json(tool("plan --json " + kCluster + "--profile " + one).text, "plan");
  EXPECT_GE(get<double>(json["groupings"][0], "predicted_step_s", "plan"), 1e-3);
  write_text(empty, R"({"tensors": []})");
  refused("plan " + kCluster + "--profile " + empty, empty + ": the profile has no tensors");
  refused("plan " + kMlp + kCluster + "--out /no/such/folder/plan.json",
          "/no/such/folder/plan.json");
}

TEST(KnownFailures, KF54_OneRank) {
  const std::string cluster = scratch("one_rank.json");
  write_text(cluster, R"({"ranks_per_level": [1]})");
  for (const auto& grouping : groupings().names()) {
    const Said said =
        tool("plan --json " + kMlp + "--cluster " + cluster + " --grouping " + grouping);
    ASSERT_EQ(said.code, 0);
    const Json json = parse_json(said.text, "plan");
    for (const auto& row : json["groupings"])
      EXPECT_EQ(get<double>(row, "predicted_exposed_s", "plan"), 0) << grouping;
  }
}

TEST(KnownFailures, KF58_MisspeltNamesEndWithCodeTwoAndTheNearest) {
  refused("plam", "unknown verb 'plam'; did you mean 'plan'?");
  refused("plan --profil x", "plan: unknown option '--profil'; did you mean '--profile'?");
  refused("plan --profil=x", "did you mean '--profile'?");
  refused("plan " + kMlp + kCluster + "--grouping exct",
          "unknown grouping 'exct'; did you mean 'exact'?");
  refused("plan " + kMlp + kCluster + "--grouping 'size_cap{byte=1}'", "did you mean 'bytes'?");
  refused("plan " + kMlp + kCluster + "--form 'fe|topk'", "unknown memory 'fe'");
}

TEST(PlanCli, SearchesAndSaysWhy) {
  const Watchdog watchdog("PlanCli");
  const std::string profile = scratch("measured.json"), path = scratch("found.json");
  std::ofstream(profile) << R"({"tensors": [
    {"name": "a", "dtype": "f32", "shape": [1000, 1000], "forward_s": 0.01, "backward_s": 0.02},
    {"name": "b", "dtype": "f32", "shape": [1000, 1000], "forward_s": 0.01, "backward_s": 0.02}],
    "codecs": {"cast{f16}": {"encode_bytes_per_s": 4e9, "decode_bytes_per_s": 4e9}}})";
  const std::string where = "--profile " + profile + " " + kCluster;
  const Said same = tool("plan " + where + "--explain");
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_NE(same.text.find("Send whole gradients in "), std::string::npos) << same.text;
  const Said bounded =
      tool("plan " + where + "--quality bounded --rate 100mbit --out " + path + " --json");
  ASSERT_EQ(bounded.code, 0) << bounded.text;
  const Json json = parse_json(bounded.text, "plan");
  EXPECT_EQ(json["chosen"]["form"], "cast{f16}");
  EXPECT_NEAR(json["dense"]["predicted_step_s"].get<double>(), 0.04 + 0.64, 0.04);
  EXPECT_LT(json["chosen"]["predicted_step_s"].get<double>(), 0.4);
  EXPECT_EQ(tool("plan --check " + path + " --ranks 2").code, 0);
  const Said run = tool("simulate " + path + " " + where + "--rate 100mbit --json");
  EXPECT_NEAR(parse_json(run.text, "simulate")["step_s"].get<double>(),
              json["chosen"]["predicted_step_s"].get<double>(), 1e-9);
  const Said quick = tool("plan " + where + "--quality bounded --rate 100gbit --latency 1us");
  EXPECT_NE(quick.text.find("Do not compress"), std::string::npos) << quick.text;
  refused("plan " + where + "--quality boundd", "did you mean 'bounded'?");
  refused("plan " + where + "--explain --rate fast", "rate");
  refused("plan " + where + "--max-bytes-per-step 10kB", "the least of those considered");
  refused("plan --check " + path + " --ranks 2 --quality free", "searches for none");
}

TEST(PlanCli, TellsWhatToSetInPyTorchsOwnWrapper) {
  const Watchdog watchdog("PlanCli");
  const std::string where = kResnet + kCluster;
  const Said said = tool("plan " + where + "--for ddp");
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_NE(said.text.find("DistributedDataParallel(model, bucket_cap_mb="), std::string::npos);
  const Json json = parse_json(tool("plan " + where + "--for ddp --json").text, "plan");
  EXPECT_LT(json["bucket_cap_mb"].get<int>(), 25) << "62 tensors, most time in the first layers";
  EXPECT_TRUE(json["hook"].is_null());
  EXPECT_GT(json["default_predicted_step_s"].get<double>(),
            json["chosen"]["predicted_step_s"].get<double>());
  // A slow link and a measured cast: the hook, for all buckets.
  const std::string profile = scratch("for_ddp.json");
  std::ofstream(profile) << R"({"tensors": [
    {"name": "a", "dtype": "f32", "shape": [1000, 1000], "forward_s": 0.01, "backward_s": 0.02},
    {"name": "b", "dtype": "f32", "shape": [10], "forward_s": 0.01, "backward_s": 0.02}],
    "codecs": {"cast{f16}": {"encode_bytes_per_s": 4e9, "decode_bytes_per_s": 4e9}}})";
  const Said slow = tool("plan --profile " + profile + " " + kCluster +
                         "--rate 100mbit --quality bounded --for ddp");
  EXPECT_NE(slow.text.find("fp16_compress_hook"), std::string::npos) << slow.text;
  refused("plan " + where + "--for fsdp", "--for must be ddp, got 'fsdp'");
  refused("plan " + where + "--for ddp --out x.json", "writes no plan");
}

// The plan says for each tensor why it is, or is not, sent dense.
TEST(KnownFailures, KF21_ThePlanStatesTheReason) {
  const std::string profile = scratch("three.json");
  std::ofstream(profile) << R"({"tensors": [
    {"name": "small", "dtype": "f32", "shape": [6, 6], "forward_s": 0, "backward_s": 0.001},
    {"name": "large", "dtype": "f32", "shape": [64, 64], "forward_s": 0, "backward_s": 0.001},
    {"name": "flat", "dtype": "f32", "shape": [1000], "forward_s": 0, "backward_s": 0.001}]})";
  const auto reasons = [&](const std::string& form) {
    const Said said =
        tool("plan " + kCluster + "--profile " + profile + " --json --form '" + form + "'");
    EXPECT_EQ(said.code, 0) << said.text;
    std::vector<std::string> out;
    const Json json = parse_json(said.text, "plan");
    for (const auto& row : json["tensors"]) out.push_back(row["reason"].get<std::string>());
    return out;
  };
  const auto low_rank = reasons("ef|powersgd{rank=4}");
  ASSERT_EQ(low_rank.size(), 3u);
  EXPECT_EQ(low_rank[0], "dense in 144 bytes: powersgd{rank=4} would be no shorter");
  EXPECT_EQ(low_rank[1], "powersgd{rank=4} makes 2048 bytes of 16384");
  EXPECT_EQ(reasons("topk{ratio=0.97}").at(2),
            "dense in 4000 bytes: topk{ratio=0.97} would be no shorter");
  EXPECT_NE(tool("plan " + kCluster + "--profile " + profile + " --form 'powersgd{rank=4}'")
                .text.find("'small': dense in 144 bytes"),
            std::string::npos);
}

TEST(PlanCli, RefusesInWords) {
  refused("", "a verb is needed");
  refused("plan", "--profile and --cluster are needed");
  refused("plan --check x.json", "--check needs --ranks (at least 1) or --cluster");
  refused("plan --ranks many", "many");
  refused("plan " + kMlp + "--cluster /no/such/file", "cannot read '/no/such/file'");
  refused("plan extra", "unexpected argument 'extra'");
  const std::string broken = scratch("broken.json");
  write_text(broken, "{");
  refused("plan " + kCluster + "--profile " + broken, broken + ": not valid JSON at line 1");
}

TEST(PlanCli, HelpHasAnExampleAndAFullDiskIsAFailure) {
  for (const auto* verb : {"list", "plan"}) {
    const Said said = tool(std::string(verb) + " --help");
    EXPECT_EQ(said.code, 0);
    EXPECT_NE(said.text.find("Example:\n  thinwire "), std::string::npos) << said.text;
  }
  EXPECT_EQ(tool("--version").text.substr(0, 9), "thinwire ");
  EXPECT_EQ(tool("list 2>/dev/null >/dev/full").code, 1);
}

}  // namespace
}  // namespace thinwire::test
