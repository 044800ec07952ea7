// SPDX-License-Identifier: Apache-2.0
// How long planning and simulating take, on made-up models: one step on 64 and on 2,048 ranks, a
// search over 300 and 2,000 tensors, the grouping `exact` on 1,000.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>

#include "thinwire/core/json.h"
#include "thinwire/core/rng.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/search.h"
#include "thinwire/sim/simulate.h"

namespace thinwire {
namespace {

struct Case {
  std::string name;
  double target_s;
  std::function<void()> run;
};

Profile made_up(int tensors) {
  Rng rng({.seed = 3, .exchange = -1, .step = 0, .rank = 0});
  Profile out;
  constexpr std::int64_t kRows[] = {64, 128, 256, 512}, kColumns[] = {1, 9, 64, 512};
  for (int i = 0; i < tensors; ++i) {
    out.params.push_back(
        {fmt::format("layer{}", i), DType::f32, {kRows[rng.below(4)], kColumns[rng.below(4)]}});
    out.forward_s.push_back(1e-5 * static_cast<double>(1 + rng.below(100)));
    out.backward_s.push_back(2e-5 * static_cast<double>(1 + rng.below(100)));
  }
  for (const std::string& form : forms_of(Quality::free, true))
    if (form != "none") out.codecs[form] = {.encode_bytes_per_s = 2e9, .decode_bytes_per_s = 4e9};
  return out;
}

Cluster two_ranks() {
  return {.ranks_per_level = {2},
          .links = {{"all_reduce", {{.latency_s = 1e-4, .bytes_per_s = 1.25e8}}}}};
}

void simulate_one_step(const Profile& profile, int ranks, bool each_its_own) {
  Cluster cluster = changed(two_ranks(), {.ranks = ranks});
  if (each_its_own)  // or equal ranks are simulated once
    for (int rank = 0; rank < ranks; ++rank) cluster.speed.push_back(1 - 1e-4 * rank);
  const Plan plan = data_parallel_plan(
      profile.params,
      make_grouping(parse_spec("size_cap{bytes=1MiB}"), {.profile = profile, .cluster = cluster}),
      ranks, {{.name = "none"}});
  simulate(plan, profile, cluster, {.steps = 1});
}

std::vector<Case> cases() {
  static const Profile small = made_up(300), middle = made_up(1000), large = made_up(2000);
  static const Cluster two = two_ranks();
  const auto find = [](const Profile& profile, Quality quality) {
    return [&profile, quality] { search(profile, two, {.quality = quality}); };
  };
  return {
      {"simulate 1,000 layers, 64 ranks", 0.05, [] { simulate_one_step(middle, 64, false); }},
      {"the same, every rank of its own speed", 0, [] { simulate_one_step(middle, 64, true); }},
      {"simulate 1,000 layers, 2,048 ranks", 2, [] { simulate_one_step(middle, 2048, false); }},
      {"search 300 tensors, quality same", 0.1, find(small, Quality::same)},
      {"search 300 tensors, quality bounded", 0.1, find(small, Quality::bounded)},
      {"search 300 tensors, quality free", 0, find(small, Quality::free)},
      {"search 2,000 tensors, quality bounded", 2, find(large, Quality::bounded)},
      {"search 2,000 tensors, quality free", 2, find(large, Quality::free)},
      {"exact, 1,000 tensors", 0.005,
       [] { make_grouping({.name = "exact"}, {.profile = middle, .cluster = two}); }},
  };
}

double median_s(const Case& one, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    one.run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  using namespace thinwire;
  CLI::App app("How long planning and simulating take, on one core");
  int rounds = 5;
  bool json = false, check = false;
  app.add_option("--rounds", rounds, "Of each case; the median is printed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "One JSON object a row");
  app.add_flag("--check", check, "Exit code 3 where a target is missed");
  CLI11_PARSE(app, argc, argv);
  int code = 0;
  for (const Case& one : cases()) {
    const double took = median_s(one, rounds);
    const bool missed = one.target_s > 0 && took > one.target_s;
    if (check && missed) code = 3;
    Json row{{"name", one.name}, {"time_s", took}, {"rounds", rounds}};
    if (one.target_s > 0) {
      row["target_s"] = one.target_s;
      row["ratio"] = took / one.target_s;
    }
    if (json)
      fmt::print("{}\n", dump(row, "bench"));
    else
      fmt::print("{:<40} {:>9.2f} ms{}{}\n", one.name, 1e3 * took,
                 one.target_s > 0 ? fmt::format("  (at most {:g})", 1e3 * one.target_s) : "",
                 missed ? "  MISSED" : "");
    std::fflush(stdout);
  }
  return code;
}
