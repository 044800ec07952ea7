// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace thinwire {
namespace {

struct Sink {
  Sink() : file(open_memstream(&text, &size)) {}
  ~Sink() {
    std::fclose(file);
    std::free(text);
  }
  std::string str() {
    std::fflush(file);
    return {text, size};
  }
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* file;
};

ProgressState full_state() {
  return {.step = 250,
          .steps = 1000,
          .epoch = 1,
          .epochs = 3,
          .loss = 0.4321,
          .accuracy = 0.875,
          .samples_per_s = 12345,
          .bytes_per_s = 11.9e6,
          .step_s = 0.1,
          .exposed_s = 0.012};
}

TEST(Progress, LineHoldsEveryFigure) {
  const std::string line = progress_line(full_state(), {.terminal = true}, 200, 25, 75);
  for (const char* part :
       {"[=======>", " 25 %", "epoch 1/3", "step 250/1000", "loss 0.4321", "acc 87.5 %",
        "12.3k images/s", "11.9 MB/s", "exposed 12", "(12 %)", "0:25", "ETA 1:15"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
}

TEST(Progress, LineNeverExceedsItsWidthAndKeepsStepAndLossLongest) {
  for (int width = 1; width <= 220; ++width) {
    const std::string line = progress_line(full_state(), {.terminal = true}, width, 25, 75);
    EXPECT_LE(line.size(), static_cast<std::size_t>(width));
    if (width < 30) continue;
    EXPECT_NE(line.find("step 250/1000  loss 0.4321"), std::string::npos) << line;
  }
}

TEST(Progress, UnknownEndHasNoBarAndNoEta) {
  ProgressState state = full_state();
  state.steps = 0;
  const std::string line = progress_line(state, {.terminal = true}, 200, 25, 75);
  EXPECT_EQ(line.find('['), std::string::npos);
  EXPECT_EQ(line.find("ETA"), std::string::npos);
}

TEST(Progress, TerminalRedrawsOneLine) {
  Sink sink;
  Progress progress({.out = sink.file, .terminal = true, .width = 80, .redraw_s = 0});
  for (int step = 1; step <= 3; ++step) progress.update({.step = step, .steps = 3});
  progress.finish();
  const std::string text = sink.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 3);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, RedrawsAreLimitedAndTheLastStateIsShown) {
  Sink sink;
  Progress progress({.out = sink.file, .terminal = true, .width = 80, .redraw_s = 3600});
  for (int step = 1; step <= 1000; ++step) progress.update({.step = step, .steps = 1000});
  progress.finish();
  const std::string text = sink.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);  // the first and the last
  EXPECT_NE(text.find("step 1000/1000"), std::string::npos);
}

TEST(Progress, PlainLinesHaveNoControlBytes) {
  Sink sink;
  Progress progress({.out = sink.file, .line_s = 3600});  // a memory stream is no terminal
  for (int step = 1; step <= 100; ++step)
    progress.update({.step = step, .steps = 100, .loss = 1.0});
  progress.line("saved");
  progress.finish();
  const std::string text = sink.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  for (const char byte : text)
    EXPECT_TRUE(byte == '\n' || (byte >= ' ' && byte < 127)) << int{byte};
  EXPECT_NE(text.find("step 100/100"), std::string::npos);
  EXPECT_EQ(text.find('['), std::string::npos);
}

TEST(Progress, MessageStandsAboveTheBar) {
  Sink sink;
  Progress progress({.out = sink.file, .terminal = true, .width = 60, .redraw_s = 3600});
  progress.update({.step = 1, .steps = 2});
  progress.line("checkpoint saved");
  const std::string text = sink.str();
  const auto message = text.find("\r\033[Kcheckpoint saved\n");
  ASSERT_NE(message, std::string::npos);
  EXPECT_NE(text.find("step 1/2", message), std::string::npos);
}

TEST(Progress, SilentWithoutAStream) {
  Progress progress({});
  progress.update(full_state());
  progress.line("nothing");
  progress.finish();
}

}  // namespace
}  // namespace thinwire
