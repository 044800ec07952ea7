// SPDX-License-Identifier: Apache-2.0
// thinwire simulate: runs a plan in virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "thinwire/cli/plan.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/plan.h"
#include "thinwire/report/trace_json.h"
#include "thinwire/sim/simulate.h"

namespace thinwire::cli {
namespace {

struct SimulateOptions {
  std::string plan, trace;
  Measurements from;
  int steps = 10;
  std::uint64_t seed = 0;
  double jitter = 0;
  bool json = false;
};

/// Of virtual time, all of it.
struct Figures {
  Seconds first_s = 0, median_s = 0, compute_s = 0;
  double bytes_per_step = 0;  ///< sent by the rank that sends most
};

Figures figures_of(const Trace& trace, const Profile& profile, const Cluster& cluster) {
  Figures out;
  auto steps = step_seconds(trace);
  out.first_s = steps.front();
  const double count = static_cast<double>(steps.size());
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2),
                   steps.end());
  out.median_s = steps[steps.size() / 2];
  const double slowest =
      cluster.speed.empty() ? 1 : *std::min_element(cluster.speed.begin(), cluster.speed.end());
  out.compute_s = (std::accumulate(profile.forward_s.begin(), profile.forward_s.end(), 0.0) +
                   std::accumulate(profile.backward_s.begin(), profile.backward_s.end(), 0.0) +
                   profile.update_s) /
                  slowest;
  std::map<Rank, double> sent;
  for (const Event& event : trace) sent[event.rank] += static_cast<double>(event.bytes);
  for (const auto& [rank, bytes] : sent)
    out.bytes_per_step = std::max(out.bytes_per_step, bytes / count);
  return out;
}

int run_simulate(const SimulateOptions& options) {
  if (options.plan.empty() || options.from.profile.empty() || options.from.cluster.empty())
    throw ConfigError("simulate: a plan file, --profile and --cluster are needed");
  const Plan plan =
      load(options.plan, [](auto text, auto path) { return plan_from_json(text, path); });
  const Profile profile = options.from.read_profile();
  const Cluster cluster = options.from.read_cluster();
  const Trace trace =
      simulate(plan, profile, cluster,
               {.steps = options.steps, .seed = options.seed, .jitter = options.jitter});
  const Figures figures = figures_of(trace, profile, cluster);
  if (!options.trace.empty())
    write_trace(options.trace, {.events = trace, .clock = TraceClock::virtual_time});
  if (options.json) {
    Json out{{"plan", options.plan},
             {"clock", "virtual"},
             {"ranks", world_size(cluster)},
             {"steps", options.steps},
             {"step_s", figures.median_s},
             {"first_step_s", figures.first_s},
             {"compute_s", figures.compute_s},
             {"exposed_s", figures.median_s - figures.compute_s},
             {"bytes_per_step", figures.bytes_per_step}};
    if (!options.trace.empty()) out["trace"] = options.trace;
    fmt::print("{}\n", dump(out, "simulate"));
    return kOk;
  }
  fmt::print("virtual time, {} steps on {} ranks, {} exchanges a plan\n", options.steps,
             world_size(cluster), plan.exchanges.size());
  fmt::print("step {}  (first {}, compute {}, the rest {})\n", format_seconds(figures.median_s),
             format_seconds(figures.first_s), format_seconds(figures.compute_s),
             format_seconds(figures.median_s - figures.compute_s));
  fmt::print("{} a step and rank\n", format_bytes(static_cast<Bytes>(figures.bytes_per_step)));
  if (options.trace.empty())
    fmt::print("'--trace trace.json' writes what happened when, for chrome://tracing\n");
  else
    fmt::print("wrote {}\n", options.trace);
  return kOk;
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* verb =
      add_verb(app, chosen, "simulate", "Run a plan in virtual time",
               "thinwire plan --profile tests/plan/profiles/resnet18.json \\\n"
               "    --cluster tests/plan/profiles/cluster_2_ranks_1gbit.json --out plan.json\n"
               "  thinwire simulate plan.json --profile tests/plan/profiles/resnet18.json \\\n"
               "    --cluster tests/plan/profiles/cluster_2_ranks_1gbit.json",
               [options] { return run_simulate(*options); });
  verb->add_option("plan", options->plan, "A plan file, as 'thinwire plan --out' writes it");
  add_measurements(*verb, options->from);
  verb->add_option("--steps", options->steps, "Steps to run; the median is shown")
      ->capture_default_str();
  verb->add_option("--jitter", options->jitter,
                   "Deviation of a rank's computation from step to step, as a share of it")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Of the jitter")->capture_default_str();
  verb->add_option("--trace", options->trace,
                   "Write the trace: .json for chrome://tracing and Perfetto, else JSON lines");
  verb->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace thinwire::cli
