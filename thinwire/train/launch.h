// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of one machine as processes and looks after them: they die with the parent,
// their words are labelled, a signal reaches all of them, and the failure that came first is the
// one reported. No torch.
#pragma once
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace thinwire {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  ///< program (a path) and its words
  std::string file;                  ///< what to execute; empty: the program of `command`
  std::FILE* errors = stderr;        ///< labelled lines and the report of a failure
};

/// Runs the command once a rank, with the environment that launch_environment() reads, and returns
/// when all have ended: 0; the exit code of the rank that failed first; 128 + n when signal n asked
/// the ranks to stop. Rank 0 keeps the caller's standard output; what the others print and all
/// errors are labelled "[rank R]". SIGINT and SIGTERM are passed on; a second one kills. After a
/// failure the remaining ranks have two seconds. Call it from the main thread, before any other
/// thread exists.
int launch(const LaunchOptions& options);

/// In a launched rank: tells the launcher why this rank fails, before the others notice. Elsewhere
/// it does nothing.
void report_failure(const std::exception& error);

/// Keeps the calling thread and what it starts on this rank's part of the cores, where there is at
/// least one a rank. True if so.
bool pin_to_cores(int local_rank, int local_size);
/// Cores that this process may use.
int available_cores();

}  // namespace thinwire
