// SPDX-License-Identifier: Apache-2.0
// What a person sees while a run goes on: one redrawn line on a terminal, plain lines elsewhere.
// Prints only to the stream that the caller hands over; without one it is silent.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "thinwire/core/types.h"

namespace thinwire {

/// Where a run stands. What is not known yet is left out of the line.
struct ProgressState {
  std::int64_t step = 0;   ///< steps done
  std::int64_t steps = 0;  ///< steps in all; 0: unknown, no bar and no ETA
  int epoch = 0;           ///< counts from 1; 0: not shown
  int epochs = 0;
  std::optional<double> loss;
  std::optional<double> accuracy;       ///< 0 to 1
  std::optional<double> samples_per_s;  ///< of all ranks together
  std::optional<double> bytes_per_s;    ///< sent by this rank
  std::optional<Seconds> step_s;
  std::optional<Seconds> exposed_s;  ///< part of step_s in which this rank only waits for others
};

struct ProgressOptions {
  std::FILE* out = nullptr;      ///< borrowed; must outlive the object. nullptr: silent
  std::optional<bool> terminal;  ///< not given: isatty(out)
  int width = 0;  ///< columns; 0: asked from the terminal at every redraw, 80 if it does not say
  Seconds redraw_s = 0.1;         ///< least time between two redraws on a terminal
  Seconds line_s = 5;             ///< least time between two plain lines
  std::string sample = "images";  ///< the word for samples
};

/// The line, at most `width` columns, with a bar where options.terminal is true; `eta_s` negative:
/// not known. Where it is too long, the parts of least use are dropped.
std::string progress_line(const ProgressState& state, const ProgressOptions& options, int width,
                          Seconds elapsed_s, Seconds eta_s);

/// Not thread-safe; one object a stream.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  ///< moves to a new line if a bar is open
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows the state if enough time has passed since the last showing; costs a clock read
  /// otherwise.
  void update(const ProgressState& state);
  /// A whole line of its own, above the bar on a terminal. No line end in `text`.
  void line(const std::string& text);
  /// Shows the last state whatever the time and ends the bar. Later calls start a new one.
  void finish();

 private:
  void show();
  void erase();
  ProgressOptions options_;
  bool terminal_ = false;
  bool open_ = false;     // a bar stands on the current line
  bool pending_ = false;  // a state has come that was not shown
  ProgressState state_;
  std::optional<Clock::time_point> began_;
  std::int64_t began_step_ = 0;
  Clock::time_point shown_{};
};

}  // namespace thinwire
