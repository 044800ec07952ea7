// SPDX-License-Identifier: Apache-2.0
// The report in a real browser, where there is one: its script runs to its end and draws
// everything.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <regex>

#include "tests/report/sample_run.h"
#include "tests/report/scratch.h"
#include "tests/support/watchdog.h"
#include "thinwire/report/html.h"

namespace thinwire {
namespace {

using test::Scratch;
using test::write_sample_run;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (std::system(("command -v " + std::string(name) + " >/dev/null 2>&1").c_str()) == 0)
      return name;
  return "";
}

std::string rendered(const std::string& page, const Scratch& scratch, const char* window) {
  const std::string command =
      "timeout 60 " + browser() +
      " --headless --no-sandbox --disable-gpu --user-data-dir=" + scratch.file("profile") +
      " --window-size=" + window + " --virtual-time-budget=4000 --dump-dom 'file://" + page +
      "' 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  std::array<char, 65536> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    out.append(part.data(), n);
  pclose(pipe);
  return out;
}

int count_of(const std::string& dom, const std::string& attribute) {
  std::smatch match;
  if (!std::regex_search(dom, match, std::regex(attribute + "=\"([0-9]+)\""))) return -1;
  return std::stoi(match[1]);
}

int matches(const std::string& dom, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(dom.begin(), dom.end(), regex), {}));
}

TEST(HtmlInBrowser, DrawsCurvesAndTimelineAtDesktopAndPhoneWidth) {
  if (browser().empty()) GTEST_SKIP() << "no chromium here";
  const test::Watchdog watchdog("", 150);
  const Scratch scratch;
  const std::string path = write_report(write_sample_run(scratch.path()));
  for (const char* window : {"1280,2000", "390,2000"}) {
    const std::string dom = rendered(path, scratch, window);
    ASSERT_TRUE(contains(dom, "data-ready=\"true\""))
        << window << ": the page's script did not end";
    EXPECT_EQ(matches(dom, "data-points=\"[1-9]"), 3) << window;  // loss, accuracy, step time
    EXPECT_GE(count_of(dom, "data-points"), 400) << window;       // training and test points
    EXPECT_EQ(count_of(dom, "data-bars"), 2 * (8 + 8 + 1 + 4))
        << window;  // two ranks' events of the step
    EXPECT_EQ(matches(dom, "<option "), 6) << window;
    EXPECT_TRUE(std::regex_search(dom, std::regex("class=\"exposed\""))) << window;
    EXPECT_EQ(matches(dom, "<tr><td>[01]</td><td>[0-3]</td>"), 8)
        << window;  // the exchanges as a table
  }
}

TEST(HtmlInBrowser, DrawsRunsSideBySide) {
  if (browser().empty()) GTEST_SKIP() << "no chromium here";
  const test::Watchdog watchdog("", 100);
  const Scratch scratch;
  std::vector<RunData> runs = {
      read_run(write_sample_run(scratch.path())),
      read_run(write_sample_run(scratch.path(), {.name = "other", .ranks = 1}))};
  runs[1].metrics.clear();  // a run without metrics does not disturb the others
  write_text(scratch.file("many.html"), html_report(runs));
  const std::string dom = rendered(scratch.file("many.html"), scratch, "1280,2000");
  ASSERT_TRUE(contains(dom, "data-ready=\"true\""));
  EXPECT_EQ(matches(dom, "data-points=\"[1-9]"), 3);
  EXPECT_EQ(matches(dom, "data-bars=\"[1-9]"), 2);
  EXPECT_TRUE(contains(dom, "<p>other: ")) << "each run has a line of its own at the top";
}

TEST(HtmlInBrowser, RunsWithoutMetricsOrTraceStillRender) {
  if (browser().empty()) GTEST_SKIP() << "no chromium here";
  const test::Watchdog watchdog("", 100);
  const Scratch scratch;
  const std::string path = write_report(RunFolder::create(scratch.path(), "empty").path());
  EXPECT_TRUE(contains(rendered(path, scratch, "1280,800"), "data-ready=\"true\""));
}

}  // namespace
}  // namespace thinwire
