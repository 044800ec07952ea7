// SPDX-License-Identifier: Apache-2.0
// thinwire report and thinwire doctor, run as programs.
#include <gtest/gtest.h>

#include <thread>

#include "tests/cli/tool.h"
#include "tests/report/sample_run.h"
#include "tests/report/scratch.h"
#include "tests/support/watchdog.h"

namespace thinwire::test {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(ReportCli, WritesIntoTheRunsFolderAndSaysTheVerdict) {
  const Watchdog watchdog("ReportCli");
  const Scratch scratch;
  const std::string run = write_sample_run(scratch.path());
  const Said said = tool("report " + run);
  EXPECT_EQ(said.code, 0);
  EXPECT_TRUE(contains(said.text, "Reached 91.2 % test accuracy")) << said.text;
  EXPECT_TRUE(contains(said.text, "report: " + run + "/report.html\n")) << said.text;
  EXPECT_TRUE(contains(read_text(run + "/report.html"), "<!DOCTYPE html>"));
}

TEST(ReportCli, SeveralRunsAndJson) {
  const Watchdog watchdog("ReportCli");
  const Scratch scratch;
  const std::string a = write_sample_run(scratch.path()), b = write_sample_run(scratch.path());
  const std::string out = scratch.file("both.html");
  const Said said = tool("report " + a + " " + b + " --json --out " + out);
  ASSERT_EQ(said.code, 0) << said.text;
  const Json json = parse_json(said.text, "report");
  EXPECT_EQ(json.at("report"), out);
  ASSERT_EQ(json.at("runs").size(), 2U);
  EXPECT_EQ(json.at("runs")[1].at("name"), "cnn-fashion-2");
  EXPECT_DOUBLE_EQ(json.at("runs")[0].at("summary").at("test_accuracy"), 0.912);
  EXPECT_TRUE(contains(read_text(out), "Side by side"));
}

TEST(ReportCli, WrongUseEndsWithTwo) {
  const Watchdog watchdog("ReportCli");
  const Scratch scratch;
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const Said said = tool(arguments + " 2>&1");
    EXPECT_EQ(said.code, 2) << arguments;
    EXPECT_TRUE(contains(said.text, words)) << said.text;
  };
  refused("report /nonexistent", "/nonexistent is no folder");
  refused("report " + scratch.path(), "run.json is missing");
  write_text(scratch.file("run.json"), "{]");
  refused("report " + scratch.path(), "run.json");
  refused("report", "run");
  const std::string run = write_sample_run(scratch.path());
  refused("report " + run + " --out /nonexistent/folder/x.html", "/nonexistent/folder");
}

TEST(DoctorCli, SaysWhatIsThere) {
  const Watchdog watchdog("DoctorCli");
  const Said said = tool("doctor");
  EXPECT_EQ(said.code, 0);
  for (const char* part :
       {"thinwire ", "compiler ", "transports ", "cores ", "memory ", "interface lo"})
    EXPECT_TRUE(contains(said.text, part)) << part << "\n" << said.text;
  const Json json = parse_json(tool("doctor --json").text, "doctor");
  EXPECT_FALSE(json.at("machine").at("cores_allowed").empty());
  EXPECT_GT(json.at("machine").at("memory_bytes").get<std::int64_t>(), 0);
  EXPECT_FALSE(json.at("transports").empty());
  bool loopback = false;
  for (const Json& one : json.at("interfaces"))
    if (one.at("name") == "lo")
      loopback = one.at("addresses").dump().find("127.0.0.1") != std::string::npos;
  EXPECT_TRUE(loopback);
}

TEST(DoctorCli, MeasuresTheLinkOverTcpAndEndsWithThreeWhereItIsTooSlow) {
  const Watchdog watchdog("DoctorCli");
  const Scratch scratch;
  const auto measured = [&](const std::string& rate) {
    const std::string join = "doctor --join file:" + scratch.file("meet" + rate) +
                             " --ranks 2 --timeout 20 --rate " + rate;
    Said other;
    std::thread second([&] { other = tool(join + " --rank 1 2>&1"); });
    const Said first = tool(join + " --rank 0 --json");
    second.join();
    EXPECT_EQ(other.code, 0) << other.text;
    const Json links = parse_json(first.text, "doctor").at("links");
    EXPECT_EQ(links.size(), 2U);
    for (const Json& link : links) {
      EXPECT_GT(link.at("bytes_per_s"), 1e6);
      EXPECT_EQ(link.at("reaches_rate"), first.code == 0);
    }
    return first.code;
  };
  EXPECT_EQ(measured("8mbit"), 0);
  EXPECT_EQ(measured("100000gbit"), 3);  // no loopback carries it
}

TEST(DoctorCli, WrongUseEndsWithTwo) {
  const Watchdog watchdog("DoctorCli");
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const Said said = tool("doctor " + arguments + " 2>&1");
    EXPECT_EQ(said.code, 2) << arguments;
    EXPECT_TRUE(contains(said.text, words)) << said.text;
  };
  refused("--rate 1gbit", "--join HOST:PORT");
  refused("--rate fast", "fast");
  refused("--join localhost:1 --ranks 2 --rank 2", "--rank must be 0 to 1, got 2");
  refused("--join localhost:1 --rank 0", "--ranks must be at least 2, got 0");
}

}  // namespace
}  // namespace thinwire::test
