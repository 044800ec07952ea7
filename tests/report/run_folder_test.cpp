// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/run_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "tests/report/scratch.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using test::Scratch;

TEST(RunFolder, NeverOverwritten) {
  const Scratch scratch;
  const std::string parent = scratch.file("runs/deeper");
  EXPECT_EQ(RunFolder::create(parent, "demo").name(), "demo");
  EXPECT_EQ(RunFolder::create(parent, "demo").name(), "demo-2");
  EXPECT_EQ(RunFolder::create(parent, "demo").name(), "demo-3");
}

TEST(RunFolder, RunsThatStartAtOnceGetFoldersOfTheirOwn) {
  const Scratch scratch;
  std::mutex mutex;
  std::set<std::string> paths;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      const std::string path = RunFolder::create(scratch.path(), "run").path();
      std::lock_guard lock(mutex);
      paths.insert(path);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(paths.size(), 8U);
}

TEST(RunFolder, UnwritableParentIsNamed) {
  const Scratch scratch;
  std::ofstream(scratch.file("file")) << "x";
  try {
    RunFolder::create(scratch.file("file"), "run");
    FAIL() << "created";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(scratch.file("file")), std::string::npos)
        << error.what();
  }
}

RunInfo example_info() {
  RunInfo info;
  info.command = {"thinwire", "train", "a b"};
  info.setup = {.model = "cnn",
                .transport = "tcp",
                .congestion_control = "cubic",
                .parameters = 100,
                .batch_size = 64,
                .ranks = 2,
                .hosts = {"a", "b"}};
  info.configuration = {{"model", {{"name", "cnn"}}}};
  info.versions = build_versions();
  info.summary = {.test_accuracy = 0.9, .steps = 10, .step_s = 0.1, .wire_bytes_per_step = 1e6};
  info.status = "finished";
  return info;
}

TEST(RunFolder, ComesBackAsWritten) {
  const Scratch scratch;
  RunFolder folder = RunFolder::create(scratch.path(), "run");
  EXPECT_EQ(read_run(folder.path()).info.status, "running");
  const std::string started_at = read_run(folder.path()).info.started_at;
  EXPECT_EQ(started_at.size(), 20U) << started_at;
  folder.write_info(example_info());
  folder.append({.step = 1, .loss = 2.0});
  folder.append({.step = 2, .loss = 1.0});
  folder.append_trace(0, {{0, 0, OpKind::forward, 0, 0, 1, 0}});
  folder.append_trace(0, {{0, 1, OpKind::forward, 0, 1, 2, 0}});
  RunFolder::open(folder.path()).append_trace(1, {{1, 0, OpKind::forward, 0, 0, 1, 0}});

  const RunData run = read_run(folder.path());
  EXPECT_TRUE(run.problems.empty()) << run.problems[0];
  RunInfo expected = example_info();
  expected.name = "run";
  expected.started_at = started_at;  // kept from the beginning
  EXPECT_EQ(to_json(run.info).dump(2), to_json(expected).dump(2));
  EXPECT_EQ(run.metrics.size(), 2U);
  EXPECT_EQ(run.trace.events.size(), 3U);
  EXPECT_TRUE(std::filesystem::is_directory(folder.checkpoint_folder()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.file("tensorboard")), {}), 1);
}

TEST(RunFolder, UnknownPartsStayAbsent) {
  const Json json = to_json(RunInfo{});
  EXPECT_TRUE(json.at("summary").empty());
  EXPECT_EQ(json.at("setup").dump(), R"({"ranks":1})");
  EXPECT_EQ(to_json(RunSummary{.steps = 3}).dump(), R"({"steps":3})");
}

TEST(RunFolder, DamagedPartsAreNamedAndTheRestIsRead) {
  const Scratch scratch;
  RunFolder folder = RunFolder::create(scratch.path(), "run");
  folder.append({.step = 1, .loss = 2.0});
  std::ofstream(folder.file("trace.jsonl")) << "not json\n";
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.metrics.size(), 1U);
  ASSERT_EQ(run.problems.size(), 1U);
  EXPECT_NE(run.problems[0].find("trace.jsonl:1"), std::string::npos) << run.problems[0];
  std::ofstream(folder.file("run.json")) << "{}";
  EXPECT_THROW(read_run(folder.path()), DataError);
  std::filesystem::remove(folder.file("run.json"));
  EXPECT_THROW(read_run(folder.path()), ConfigError);
  EXPECT_THROW(read_run(scratch.file("absent")), ConfigError);
  EXPECT_THROW(RunFolder::open(scratch.file("absent")), ConfigError);
}

}  // namespace
}  // namespace thinwire
