// SPDX-License-Identifier: Apache-2.0
#include "thinwire/cli/bench_comm.h"

#include <fmt/format.h>

#include "thinwire/core/spec.h"
#include "thinwire/core/text.h"

namespace thinwire::cli {
namespace {

constexpr Bytes kShort = 4096;
constexpr Seconds kShortTarget = 1e-4;

}  // namespace

Json row_of(const CommFigures& figures, const std::string& comm, int ranks) {
  const double n = ranks, bytes = static_cast<double>(figures.bytes);
  const Seconds time = figures.median();
  const double calls = figures.calls * static_cast<double>(figures.time.size());
  const double sent = 2 * (n - 1) * bytes * calls;  // by all ranks together, at least
  Json row = {{"name", "all_reduce " + format_bytes(figures.bytes)},
              {"comm", comm},
              {"ranks", ranks},
              {"bytes", figures.bytes},
              {"blocks", figures.time.size()},
              {"calls_per_block", figures.calls},
              {"time_s", time},
              {"bus_bytes_per_s", 2 * (n - 1) / n * bytes / time},
              {"cpu_s_per_gb", figures.cpu_s / (sent / 1e9)}};
  if (parse_chain(comm).back().name == "tcp" && figures.bytes == kShort) {
    row["target_time_s"] = kShortTarget;
    row["time_ratio"] = time / kShortTarget;
  }
  return row;
}

std::string missed(const Json& row) {
  if (!row.contains("time_ratio") || row.at("time_ratio").get<double>() <= 1) return "";
  return fmt::format("{} over {}: {} where at most {} is wanted", row.at("name").get<std::string>(),
                     row.at("comm").get<std::string>(),
                     format_seconds(row.at("time_s").get<double>()),
                     format_seconds(row.at("target_time_s").get<double>()));
}

}  // namespace thinwire::cli
