// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "thinwire/core/text.h"

namespace thinwire {
namespace {

constexpr int kPlainWidth = 200;

int terminal_width(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string clock_text(Seconds seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string count_text(double value) {
  if (value >= 99500) return fmt::format("{:.0f}k", value / 1000);
  if (value >= 9950) return fmt::format("{:.1f}k", value / 1000);
  return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
}

// ASCII, so that one byte is one column whatever the locale.
std::string bar_text(std::int64_t step, std::int64_t steps, int cells) {
  const double done = std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
  const int full = static_cast<int>(std::floor(done * cells));
  std::string bar(static_cast<std::size_t>(cells), '-');
  std::fill_n(bar.begin(), full, '=');
  if (full < cells && full > 0) bar[static_cast<std::size_t>(full)] = '>';
  return fmt::format("[{}] {:3.0f} %", bar, std::floor(done * 100));
}

struct Part {
  std::string text;
  int use;  // the smallest goes first where the line is too long
};

std::vector<Part> parts_of(const ProgressState& s, const ProgressOptions& options,
                           Seconds elapsed_s, Seconds eta_s) {
  std::vector<Part> parts;
  if (s.epoch > 0)
    parts.push_back({fmt::format("epoch {}/{}", s.epoch, std::max(s.epoch, s.epochs)), 3});
  parts.push_back(
      {s.steps > 0 ? fmt::format("step {}/{}", s.step, s.steps) : fmt::format("step {}", s.step),
       9});
  if (s.loss) parts.push_back({fmt::format("loss {:.4f}", *s.loss), 8});
  if (s.accuracy) parts.push_back({fmt::format("acc {:.1f} %", 100 * *s.accuracy), 7});
  if (s.samples_per_s)
    parts.push_back({fmt::format("{} {}/s", count_text(*s.samples_per_s), options.sample), 5});
  if (s.bytes_per_s)
    parts.push_back({fmt::format("{}/s", format_bytes(std::llround(*s.bytes_per_s))), 4});
  if (s.exposed_s) {
    std::string text = "exposed " + format_seconds(*s.exposed_s);
    if (s.step_s && *s.step_s > 0)
      text += fmt::format(" ({:.0f} %)", 100 * *s.exposed_s / *s.step_s);
    parts.push_back({std::move(text), 2});
  }
  parts.push_back({clock_text(elapsed_s), 1});
  if (eta_s >= 0 && s.steps > 0) parts.push_back({"ETA " + clock_text(eta_s), 6});
  return parts;
}

std::size_t joined_size(const std::vector<Part>& parts) {
  std::size_t columns = 0;
  for (const Part& part : parts) columns += part.text.size() + 2;
  return columns == 0 ? 0 : columns - 2;
}

}  // namespace

std::string progress_line(const ProgressState& state, const ProgressOptions& options, int width,
                          Seconds elapsed_s, Seconds eta_s) {
  const auto limit = static_cast<std::size_t>(std::max(width, 1));
  std::vector<Part> parts = parts_of(state, options, elapsed_s, eta_s);
  while (parts.size() > 1 && joined_size(parts) > limit)
    parts.erase(std::min_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.use < b.use; }));
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  constexpr int kFrame = 10;  // "[" "] 100 %" and two blanks
  const int room = static_cast<int>(limit) - static_cast<int>(line.size()) - kFrame;
  if (options.terminal.value_or(false) && state.steps > 0 && room >= 8)
    line = bar_text(state.step, state.steps, std::min(room, 30)) + "  " + line;
  return line.substr(0, limit);
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (options_.out == nullptr) return;
  terminal_ = options_.terminal.value_or(isatty(fileno(options_.out)) == 1);
  options_.terminal = terminal_;
}

Progress::~Progress() {
  if (open_) std::fputc('\n', options_.out);
}

void Progress::update(const ProgressState& state) {
  if (options_.out == nullptr) return;
  const auto now = Clock::now();
  state_ = state;
  pending_ = true;
  if (!began_) {
    began_ = now;
    began_step_ = state.step;
  } else if (std::chrono::duration<double>(now - shown_).count() <
             (terminal_ ? options_.redraw_s : options_.line_s)) {
    return;
  }
  show();
}

void Progress::show() {
  const auto now = Clock::now();
  const Seconds elapsed_s = std::chrono::duration<double>(now - *began_).count();
  const std::int64_t done = state_.step - began_step_;
  const Seconds eta_s = done > 0 ? elapsed_s / static_cast<double>(done) *
                                       static_cast<double>(state_.steps - state_.step)
                                 : -1;
  shown_ = now;
  pending_ = false;
  if (terminal_) {
    // One column stays free: a full last column would wrap on some terminals.
    const int width = (options_.width > 0 ? options_.width : terminal_width(options_.out)) - 1;
    std::fputs(("\r\033[K" + progress_line(state_, options_, width, elapsed_s, eta_s)).c_str(),
               options_.out);
    open_ = true;
  } else {
    const int width = options_.width > 0 ? options_.width : kPlainWidth;
    std::fputs((progress_line(state_, options_, width, elapsed_s, eta_s) + '\n').c_str(),
               options_.out);
  }
  std::fflush(options_.out);
}

void Progress::erase() {
  if (!open_) return;
  std::fputs("\r\033[K", options_.out);
  open_ = false;
}

void Progress::line(const std::string& text) {
  if (options_.out == nullptr) return;
  const bool again = open_;
  erase();
  std::fputs((text + '\n').c_str(), options_.out);
  if (again) show();
  std::fflush(options_.out);
}

void Progress::finish() {
  if (options_.out == nullptr) return;
  if (pending_) show();
  if (open_) std::fputc('\n', options_.out);
  std::fflush(options_.out);
  open_ = false;
  began_.reset();
}

}  // namespace thinwire
