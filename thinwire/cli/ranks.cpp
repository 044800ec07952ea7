// SPDX-License-Identifier: Apache-2.0
#include "thinwire/cli/ranks.h"

#include <fmt/format.h>

#include <exception>
#include <thread>

#include "thinwire/cli/tool.h"
#include "thinwire/comm/c10d.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/train/context.h"
#include "thinwire/train/launch.h"
#include "thinwire/train/torch_build.h"

namespace thinwire::cli {
namespace {

void prepare_cores(const TrainConfig& config, int local_rank, int local_size) {
  const int cores = available_cores();
  if (config.pin == "auto") pin_to_cores(local_rank, local_size);
  set_compute_threads(config.threads > 0 ? config.threads : std::max(1, cores / local_size));
}

int as_threads(const TrainConfig& config, const std::function<int(Comm*)>& body) {
  const int ranks = static_cast<int>(config.ranks);
  auto comms = make_local(ranks, config.timeout_s, config.comm);
  std::vector<int> codes(static_cast<std::size_t>(ranks), 0);
  std::vector<std::exception_ptr> errors(codes.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        prepare_cores(config, rank, ranks);
        codes[at] = body(comms[at].get());
      } catch (const std::exception& error) {
        errors[at] = std::current_exception();
        // The others wait for this rank; they are told instead.
        comms[at]->membership()->fail(
            {.rank = rank, .text = fmt::format("rank {} failed: {}", rank, error.what())});
      }
    });
  for (auto& thread : threads) thread.join();
  std::exception_ptr first;
  for (const auto& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommError&) {
      if (!first) first = error;
    } catch (const std::exception&) {
      std::rethrow_exception(error);
    }
  }
  if (first) std::rethrow_exception(first);
  return codes[0];
}

int as_member(const TrainConfig& config, JoinOptions join, const std::function<int(Comm*)>& body) {
  join.timeout_s = config.timeout_s;
  if (!config.interface.empty()) join.interface = config.interface;
  std::unique_ptr<Comm> comm;
  try {
    comm = make_comm(config.comm, join);
    return body(comm.get());
  } catch (const std::exception& error) {
    report_failure(error);
    const bool consequence = dynamic_cast<const CommError*>(&error) != nullptr;
    if (comm && !consequence)
      comm->membership()->fail(
          {.rank = join.rank, .text = fmt::format("rank {} failed: {}", join.rank, error.what())});
    throw;
  }
}

}  // namespace

void add_rank_options(CLI::App& verb, RankOptions& options) {
  verb.add_option("--ranks", options.ranks,
                  "Ranks that work together; started here unless --join or a launcher");
  verb.add_option("--comm", options.comm, "Transport: tcp (default), local, c10d, mpi");
  verb.add_option("--join", options.join, "HOST:PORT where rank 0 listens; without any launcher");
  verb.add_option("--rank", options.rank, "This process' rank, with --join");
}

void apply(const RankOptions& options, TrainConfig& config) {
  if (options.ranks) set_option(config, "ranks", std::to_string(*options.ranks));
  if (!options.comm.empty()) config.comm = options.comm;
  if (options.join.empty()) {
    if (options.rank)
      throw ConfigError("--rank: goes with --join HOST:PORT, which says where rank 0 listens");
    return;
  }
  if (config.ranks < 2)
    throw ConfigError(
        fmt::format("--ranks: with --join it must be at least 2, got {}", config.ranks));
  if (!options.rank) throw ConfigError("--rank: is needed with --join; rank 0 listens there");
  if (*options.rank < 0 || *options.rank >= config.ranks)
    throw ConfigError(
        fmt::format("--rank: must be in [0, {}], got {}", config.ranks - 1, *options.rank));
}

int on_ranks(TrainConfig& config, const RankOptions& options,
             const std::function<int(Comm*)>& body) {
  register_c10d();
  if (!options.join.empty()) {
    prepare_cores(config, 0, 1);
    return as_member(config,
                     {.rank = static_cast<Rank>(*options.rank),
                      .size = static_cast<int>(config.ranks),
                      .address = options.join},
                     body);
  }
  if (const auto environment = find_launch(config.timeout_s)) {
    const int started = environment->join.size;
    if (options.ranks && *options.ranks != started)
      throw ConfigError(fmt::format("--ranks: {} has started {}, got {}", environment->source,
                                    started, *options.ranks));
    config.ranks = started;
    prepare_cores(config, environment->local_rank, environment->local_size);
    return as_member(config, environment->join, body);
  }
  if (config.ranks == 1) {
    prepare_cores(config, 0, 1);
    return body(nullptr);
  }
  if (parse_chain(config.comm).back().name == "local") return as_threads(config, body);
  return launch({.ranks = static_cast<int>(config.ranks),
                 .command = rank_command().words,
                 .file = rank_command().file});
}

}  // namespace thinwire::cli
