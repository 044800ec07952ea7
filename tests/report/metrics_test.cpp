// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/report/scratch.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using test::Scratch;

MetricsRow full_row() {
  return {.step = 7,
          .epoch = 0.5,
          .time_s = 1.25,
          .loss = 0.1,
          .accuracy = 0.9,
          .test_loss = 0.2,
          .test_accuracy = 0.8,
          .learning_rate = 1e-3,
          .samples_per_s = 1e4,
          .step_s = 0.01,
          .compute_s = 0.008,
          .exposed_s = 0.002,
          .wire_bytes = std::int64_t{1} << 40};
}

TEST(Metrics, RowComesBackAsWritten) {
  const Scratch scratch;
  const std::string path = scratch.file("metrics.jsonl");
  {
    JsonLinesWriter writer(path);
    writer.write(to_json(full_row()));
    writer.write(to_json(MetricsRow{.step = 8, .loss = std::numeric_limits<double>::quiet_NaN()}));
  }
  const auto rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(to_json(rows[0]).dump(), to_json(full_row()).dump());
  EXPECT_EQ(rows[1].step, 8);
  ASSERT_TRUE(rows[1].loss.has_value());
  EXPECT_TRUE(std::isnan(*rows[1].loss));
  EXPECT_FALSE(rows[1].accuracy.has_value());
}

TEST(Metrics, LinesOfSeveralWritersAreNeverMixed) {
  const Scratch scratch;
  const std::string path = scratch.file("many.jsonl");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      JsonLinesWriter writer(path);
      for (int i = 0; i < 200; ++i) writer.write({{"writer", t}, {"pad", std::string(300, 'x')}});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read_json_lines(path).size(), 800U);
}

TEST(Metrics, HalfALastLineIsLeftOutAndAnyOtherIsAnError) {
  const Scratch scratch;
  const std::string path = scratch.file("m.jsonl");
  std::ofstream(path) << "{\"step\": 1}\n{\"step\": 2, \"lo";
  EXPECT_EQ(read_metrics(path).size(), 1U);
  std::ofstream(path) << "{\"step\": 1}\n{\"step\": \n{\"step\": 3}\n";
  try {
    read_metrics(path);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("m.jsonl:2"), std::string::npos) << error.what();
  }
  std::ofstream(path) << "{\"step\": 1}\n{\"step\": \"two\"}\n";
  EXPECT_THROW(read_metrics(path), DataError);
  std::ofstream(path) << "[1]\n";
  EXPECT_THROW(read_metrics(path), DataError);
  EXPECT_THROW(read_metrics(scratch.file("absent.jsonl")), ConfigError);
}

TEST(Metrics, UnwritableFileIsNamed) {
  try {
    JsonLinesWriter writer("/nonexistent/folder/metrics.jsonl");
    FAIL() << "opened";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/folder/metrics.jsonl"),
              std::string::npos);
  }
}

TEST(Metrics, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  JsonLinesWriter writer("/dev/full");
  EXPECT_THROW(writer.write({{"step", 1}}), ConfigError);
}

TEST(Crc32c, KnownAnswers) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

}  // namespace
}  // namespace thinwire
