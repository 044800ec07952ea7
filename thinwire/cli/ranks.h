// SPDX-License-Identifier: Apache-2.0
// Runs the body of a verb on all its ranks, however they come about: processes started here,
// threads, another launcher's environment, or joined by hand.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/train/config.h"

namespace thinwire::cli {

/// Options of verbs that run on ranks, beside those of TrainConfig.
struct RankOptions {
  std::string join;  ///< HOST:PORT of rank 0
  int rank = -1;     ///< with join
};

/// `config.ranks` becomes the number of ranks that there really are. `body` gets the communicator
/// (null: one rank) and returns the exit code; rank 0's is returned.
int on_ranks(TrainConfig& config, const RankOptions& options,
             const std::vector<std::string>& command, const std::function<int(Comm*)>& body);

/// The words of this process' command line.
std::vector<std::string> own_command();

}  // namespace thinwire::cli
