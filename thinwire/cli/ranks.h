// SPDX-License-Identifier: Apache-2.0
// Runs the body of a verb on all its ranks, however they come about: processes started here,
// threads, another launcher's environment, or joined by hand.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/train/config.h"

namespace thinwire::cli {

/// Options of verbs that run on ranks, beside those of TrainConfig.
struct RankOptions {
  std::string join;                   ///< HOST:PORT of rank 0
  std::optional<std::int64_t> rank;   ///< with join
  std::optional<std::int64_t> ranks;  ///< replaces that of the configuration
  std::string comm;                   ///< likewise
};
/// --ranks, --comm, --join, --rank.
void add_rank_options(CLI::App& verb, RankOptions& options);

/// Puts what was given into `config`; ConfigError for what cannot be together.
void apply(const RankOptions& options, TrainConfig& config);

/// `config.ranks` becomes the number of ranks that there really are. `body` gets the communicator
/// (null: one rank) and returns the exit code; rank 0's is returned.
int on_ranks(TrainConfig& config, const RankOptions& options,
             const std::function<int(Comm*)>& body);

}  // namespace thinwire::cli
