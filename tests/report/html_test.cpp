// SPDX-License-Identifier: Apache-2.0
// The page's text. The page in a real browser: html_browser_test.cpp.
#include "thinwire/report/html.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/report/sample_run.h"
#include "tests/report/scratch.h"
#include "thinwire/core/error.h"
#include "thinwire/report/figures.h"

namespace thinwire {
namespace {

using test::Scratch;
using test::write_sample_run;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string page_of(const std::string& run) {
  const RunData data = read_run(run);
  return html_report(std::span(&data, 1));
}

std::string without_scripts(std::string page) {
  for (std::size_t begin = 0; (begin = page.find("<script")) != std::string::npos;)
    page.erase(begin, page.find("</script>", begin) + 9 - begin);
  return page;
}

TEST(Html, VerdictSaysWhatWasReachedAndWhatTheNetworkCost) {
  const Scratch scratch;
  const RunData run = read_run(write_sample_run(scratch.path()));
  EXPECT_EQ(verdict(std::span(&run, 1)),
            "Reached 91.2 % test accuracy in 938 steps and 1 min 51 s. A step takes 119 ms on 2 "
            "ranks over tcp; 14 ms "
            "of it (12 %) waits for the network, so that a free network would make it at most 1.13 "
            "times as fast.");
}

TEST(Html, VerdictOfUnfinishedDivergedAndEmptyRuns) {
  RunData run;
  run.info.name = "x";
  EXPECT_EQ(verdict(std::span(&run, 1)), "Not finished.");
  run.info.status = "interrupted";
  run.metrics = {{.step = 5, .time_s = 2.0, .loss = 1.5}};
  EXPECT_EQ(verdict(std::span(&run, 1)), "Interrupted after 5 steps and 2 s, at a loss of 1.5000.");
  run.metrics.push_back({.step = 6, .loss = std::nan("")});
  EXPECT_EQ(verdict(std::span(&run, 1)), "Diverged: from step 6 on, the loss is not a number.");
  EXPECT_THROW(verdict({}), ConfigError);
  EXPECT_THROW(html_report({}), ConfigError);
  EXPECT_TRUE(contains(html_report(std::span(&run, 1)), "Diverged"));
}

TEST(Html, VerdictComparesAgainstTheFirst) {
  const Scratch scratch;
  const std::vector<RunData> runs = {
      read_run(write_sample_run(scratch.path())),
      read_run(write_sample_run(scratch.path(), {.name = "topk",
                                                 .compute_s = 0.1042,
                                                 .exposed_s = 0.007,
                                                 .bytes_per_step = 0.169e6,
                                                 .final_accuracy = 0.905}))};
  EXPECT_TRUE(
      contains(verdict(runs),
               "\ntopk: step time 0.94, exposed communication 0.50, bytes sent 0.10 times the "
               "first run's; test accuracy 0.7 points lower."))
      << verdict(runs);
}

TEST(Html, FiguresMissingFromTheSummaryComeFromTheMetrics) {
  const Scratch scratch;
  RunData run = read_run(write_sample_run(scratch.path()));
  run.info.summary = {};
  const RunSummary known = known_summary(run);
  EXPECT_NEAR(known.test_accuracy.value(), 0.912, 0.001);
  EXPECT_EQ(known.steps, 938);
  EXPECT_NEAR(known.step_s.value(), 0.119, 0.002);
  EXPECT_NEAR(known.wire_bytes_per_step.value(), 1.69e6, 1);
}

TEST(Html, EveryFigureStandsInThePageWithoutItsScript) {
  const Scratch scratch;
  const std::string page = without_scripts(page_of(write_sample_run(scratch.path())));
  for (const char* part :
       {"91.2 %", "119 ms", "104 ms", "14 ms", "12 % of a step", "1.69 MB", "1,085 /s", "cubic",
        "tcp", "Ranks", "fashion-mnist", "optimizer.learning_rate", "0.05", "2.13.0", "g++|clang",
        "thinwire train demo.toml model.name=cnn 'note=it'\\''s a test' --ranks 2"}) {
    const std::string text = part;
    const auto bar = text.find('|');
    EXPECT_TRUE(contains(page, text.substr(0, bar)) ||
                (bar != std::string::npos && contains(page, text.substr(bar + 1))))
        << part;
  }
}

TEST(Html, NothingIsFetchedFromAnywhere) {
  const Scratch scratch;
  const std::string page = page_of(write_sample_run(scratch.path()));
  EXPECT_TRUE(contains(page, "default-src 'none'"));
  const std::string frame = without_scripts(page);
  for (const char* part : {"src=", "http:", "https:", "@import", "url("})
    EXPECT_FALSE(contains(frame, part)) << part;
  EXPECT_FALSE(std::regex_search(page, std::regex("<script[^>]*src")));
}

TEST(Html, TextsOfARunCannotBecomeMarkup) {
  const Scratch scratch;
  const std::string path = write_sample_run(scratch.path());
  RunData run = read_run(path);
  run.info.name = "<img src=x onerror=alert(1)>";
  run.info.setup.model = "</script><script>alert(2)</script>";
  run.info.configuration["<b>"] = "\"&";
  run.info.command = {"</pre><script>"};
  run.problems = {"<i>"};
  const std::string page = html_report(std::span(&run, 1));
  for (const char* part : {"<img", "<script>alert", "<b>\"", "</pre><script>", "<i>:", "<p><i>"})
    EXPECT_FALSE(contains(page, part)) << part;
  EXPECT_TRUE(contains(page, "\\u003cimg src=x"));
}

TEST(Html, SaysWhyThePlanIsAsItIs) {
  const Scratch scratch;
  const std::string path = write_sample_run(scratch.path());
  EXPECT_FALSE(contains(page_of(path), "Why this plan")) << "nothing was chosen";
  std::ofstream(path + "/choice.json") << R"({"verdict": "Do not compress <here>.",
    "chosen": {"form": "none", "grouping": "exact", "messages": 3, "predicted_step_s": 0.11,
               "predicted_exposed_s": 0.01, "predicted_bytes_per_step": 2000000},
    "others": [{"form": "ef|topk", "grouping": "wfbp", "messages": 8, "predicted_step_s": 0.2,
                "predicted_exposed_s": 0.1, "predicted_bytes_per_step": 20000},
               {"form": "ef|sign", "grouping": "", "note": "its speed has not been measured"}]})";
  RunData run = read_run(path);
  run.info.summary.predicted_step_s = 0.1;
  run.info.summary.step_s = 0.12;
  const std::string page = without_scripts(html_report(std::span(&run, 1)));
  for (const char* part : {"Why this plan", "Do not compress &lt;here&gt;.", "ef|topk", "200 ms",
                           "its speed has not been measured", "+20.0 %"})
    EXPECT_TRUE(contains(page, part)) << part;
  EXPECT_FALSE(contains(page, "Predicted step</dt>")) << "it stands beside the measured one";

  std::ofstream(path + "/choice.json") << "{}";
  const RunData broken = read_run(path);
  ASSERT_EQ(broken.problems.size(), 1u);
  EXPECT_TRUE(contains(broken.problems[0], "the choice of the plan left out"))
      << broken.problems[0];
  EXPECT_TRUE(contains(html_report(std::span(&broken, 1)), "left out"));
}

TEST(Html, LongRunsStaySmall) {
  const Scratch scratch;
  RunData run = read_run(write_sample_run(scratch.path(), {.steps = 20}));
  run.metrics.clear();
  for (int step = 1; step <= 200000; ++step)
    run.metrics.push_back({.step = step, .loss = 1.0, .step_s = 0.1});
  EXPECT_LT(html_report(std::span(&run, 1)).size(), 1'000'000U);
}

}  // namespace
}  // namespace thinwire
