// SPDX-License-Identifier: Apache-2.0
// The whole command-line tool as one call: for its own main() and for the Python front.
#pragma once
#include <string>
#include <vector>

namespace thinwire::cli {

/// The words of a command line.
using Words = std::vector<std::string>;

/// Runs `words` (the program's name, a verb, its options) and returns the exit code. What is thrown
/// becomes one sentence on standard error. `program`: the words that start this program anew for
/// each rank, before the verb; empty: this executable. Call it from the main thread.
int run_tool(const Words& words, const Words& program = {});

/// How the run in progress is started anew, for verbs that start ranks.
struct RankCommand {
  std::string file;  ///< to execute
  Words words;
  std::string called;  ///< the program's part of the words, for people
};
const RankCommand& rank_command();
/// The program as it was called, for a next command that can be typed as it stands.
std::string program_called();
/// The command line as it was typed, for the run's record.
Words own_command();

}  // namespace thinwire::cli
