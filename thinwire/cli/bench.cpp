// SPDX-License-Identifier: Apache-2.0
// thinwire bench comm: what an all_reduce takes over a transport, from 4 KB to 64 MiB.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>
#include <optional>

#include "thinwire/cli/bench_comm.h"
#include "thinwire/cli/ranks.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/core/text.h"
#include "thinwire/train/config.h"

namespace thinwire::cli {
namespace {

struct BenchOptions {
  std::vector<std::string> sizes;
  double seconds = 1, timeout_s = 300;
  std::string pin = "auto", interface;
  bool json = false, check = false;
  RankOptions place;
};

std::vector<Bytes> sizes_of(const BenchOptions& options) {
  std::vector<Bytes> sizes;
  for (const std::string& text : options.sizes) {
    sizes.push_back(parse_bytes(text));
    if (sizes.back() < 4 || sizes.back() % 4 != 0)
      throw ConfigError(fmt::format(
          "bench comm: --size must be '-' or bytes of whole f32 elements, got {}", text));
  }
  if (sizes.empty())
    for (Bytes bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

void print_row(const Json& row, bool json) {
  if (json) {
    fmt::print("{}\n", dump(row, "bench comm"));
  } else {
    const auto of = [&](const char* key) { return row.at(key).get<double>(); };
    fmt::print("{:>22}  {:>9}  {:>14}  {:>8.3f}\n", row.at("name").get<std::string>(),
               format_seconds(of("time_s")), format_rate(of("bus_bytes_per_s")),
               of("cpu_s_per_gb"));
  }
  std::fflush(stdout);
}

/// The next size, on all ranks; none at the end of the standard input of rank 0.
std::optional<Bytes> next_size(Comm& comm, std::int64_t step) {
  std::array<std::int64_t, 1> size{0};
  std::string line;
  if (comm.rank() == 0 && std::getline(std::cin, line)) size[0] = parse_bytes(line);
  comm.broadcast({-1, step}, {size.data(), 1, DType::i64}, 0).wait();
  return size[0] > 0 ? std::optional(size[0]) : std::nullopt;
}

int on_rank(const BenchOptions& options, const std::string& transport, Comm& comm) {
  CommTiming bench(comm);
  const bool speaks = comm.rank() == 0;
  if (speaks && !options.json)
    fmt::print("{} ranks over {}\n{:>22}  {:>9}  {:>14}  {:>8}\n", comm.size(), transport, "",
               "time", "bus bandwidth", "CPU s/GB");
  const std::string congestion = congestion_control(comm);
  std::vector<std::string> misses;
  const auto one = [&](Bytes bytes) {
    Json row = row_of(bench.measure(bytes, options.seconds), transport, comm.size());
    if (!congestion.empty()) row["congestion_control"] = congestion;
    if (speaks) print_row(row, options.json);
    if (auto words = missed(row); !words.empty()) misses.push_back(std::move(words));
  };
  if (options.sizes == std::vector<std::string>{"-"}) {
    for (std::int64_t step = 0;; ++step) {
      const auto bytes = next_size(comm, step);
      if (!bytes) break;
      one(*bytes);
    }
  } else {
    for (const Bytes bytes : sizes_of(options)) one(bytes);
  }
  if (!speaks || !options.check) return kOk;
  for (const auto& words : misses) fmt::print(stderr, "missed: {}\n", words);
  return misses.empty() ? kOk : kCheckFailed;
}

int run_bench(const BenchOptions& options) {
  if (options.sizes != std::vector<std::string>{"-"}) sizes_of(options);
  if (!(options.seconds > 0))
    throw ConfigError(
        fmt::format("bench comm: --seconds must be above 0, got {}", options.seconds));
  if (options.pin != "auto" && options.pin != "none")
    throw ConfigError("bench comm: --pin must be auto or none, got " + options.pin);
  TrainConfig config;
  config.ranks = 2;
  config.timeout_s = options.timeout_s;
  config.pin = options.pin;
  config.interface = options.interface;
  apply(options.place, config);
  return on_ranks(config, options.place, [&](Comm* comm) {
    if (comm == nullptr || comm->size() < 2)
      throw ConfigError("bench comm: at least 2 ranks are needed, got 1");
    return on_rank(options, config.comm, *comm);
  });
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand("bench", "Measure what this machine and its links do");
  bench->require_subcommand(1);
  CLI::App* verb = add_verb(*bench, chosen, "comm",
                            "All-reduce: time, bus bandwidth and CPU seconds per GB (docs/costs.md "
                            "defines them)",
                            "thinwire bench comm --comm tcp --ranks 2 --size 4KiB --size 64MiB",
                            [options] { return run_bench(*options); });
  add_rank_options(*verb, options->place);
  verb->add_option("--size", options->sizes,
                   "Bytes of the buffer, like 4KiB; may be repeated; '-': from standard input, "
                   "one a line (default 4 KiB to 64 MiB, in steps of 4)");
  verb->add_option("--seconds", options->seconds, "About how long each size is timed (default 1)");
  verb->add_flag("--json", options->json, "One JSON object a size");
  verb->add_flag("--check", options->check,
                 "Exit code 3 where a target is missed: tcp moves 4 KiB in at most 0.1 ms");
  verb->add_option("--interface", options->interface,
                   "Network interface to use (default: the one that routes to rank 0)");
  verb->add_option("--pin", options->pin, "auto: one core a rank where there are enough; none");
  verb->add_option("--timeout", options->timeout_s, "Seconds to wait for a rank (default 300)");
}

}  // namespace thinwire::cli
