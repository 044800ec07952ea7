// SPDX-License-Identifier: Apache-2.0
// Plans for 1 to 4 ranks, sound ones and such with one thing wrong, for comparing what checks,
// simulator and runtime say of them.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/plan/plan.h"

namespace thinwire::test {

/// The text of the ConfigError that it throws; empty for none.
inline std::string refusal(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct RandomPlan {
  Plan plan;
  Profile profile;
  Cluster cluster;
  int ranks = 1;
  bool sound = true;
  std::string wrong;  ///< which thing; empty for a sound one
};

struct Fault {
  const char* name;
  std::function<void(Plan&, int ranks)> make;
};

/// Each makes a sound plan wrong. Not among them: options that a codec does not have, and
/// algorithms that cannot carry a form over the transport at hand; only the runtime, which has
/// both, refuses these.
inline const std::vector<Fault>& plan_faults() {
  static const std::vector<Fault> all{
      {"rank out of range", [](Plan& p, int ranks) { p.groups[0].ranks.back() = ranks; }},
      {"no ranks", [](Plan& p, int) { p.groups[0].ranks.clear(); }},
      {"a rank twice", [](Plan& p, int) { p.groups[0].ranks.push_back(0); }},
      {"no such bucket", [](Plan& p, int) { p.exchanges[0].bucket = 99; }},
      {"no bucket", [](Plan& p, int) { p.exchanges[0].bucket = -1; }},
      {"no such group", [](Plan& p, int) { p.exchanges[0].group = 1; }},
      {"every 0", [](Plan& p, int) { p.exchanges[0].start.every = 0; }},
      {"offset too large", [](Plan& p, int) { p.exchanges[0].start.offset = 7; }},
      {"lag below 0", [](Plan& p, int) { p.exchanges[0].need.lag = -1; }},
      {"lag at the start", [](Plan& p, int) { p.exchanges[0].start.lag = 1; }},
      {"needed too early", [](Plan& p, int) { p.exchanges[0].need.phase = Phase::step_begin; }},
      {"no such algorithm", [](Plan& p, int) { p.exchanges[0].algorithm = "rong"; }},
      {"chunk below 0", [](Plan& p, int) { p.exchanges[0].chunk = -1; }},
      {"payload below 0", [](Plan& p, int) { p.exchanges[0].payload = -1; }},
      {"an element twice",
       [](Plan& p, int) { p.grouping[0].slices.push_back(p.grouping[0].slices[0]); }},
      {"no slices", [](Plan& p, int) { p.grouping.emplace_back(); }},
      {"an element nowhere", [](Plan& p, int) { ++p.grouping[0].slices[0].begin; }},
      {"no such memory", [](Plan& p, int) { p.exchanges[0].form = parse_chain("eff|none"); }},
      {"no such codec", [](Plan& p, int) { p.exchanges[0].form = parse_chain("tokp"); }},
      {"a wrong option", [](Plan& p, int) { p.exchanges[0].form = parse_chain("topk{ratio=2}"); }},
      {"combines by nothing", [](Plan& p, int) { p.exchanges[0].combine = Combine::concat; }}};
  return all;
}

/// Tensors in backward order, cut into messages anywhere.
inline Grouping random_grouping(Rng& rng, const std::vector<TensorDesc>& tensors) {
  Grouping out(1);
  for (int t = static_cast<int>(tensors.size()); t-- > 0;) {
    const std::int64_t all = elements(tensors[static_cast<std::size_t>(t)]);
    const std::int64_t cut =
        rng.below(3) == 0 ? static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(all)))
                          : 0;
    if (cut > 0) {
      out.back().slices.push_back({t, 0, cut});
      out.emplace_back();
    }
    out.back().slices.push_back({t, cut, all});
    if (t > 0 && rng.below(2) == 0) out.emplace_back();
  }
  return out;
}

inline RandomPlan random_plan(Rng& rng) {
  constexpr std::array<const char*, 5> kForms{"none", "cast{f16}", "topk{ratio=0.5}",
                                              "ef|topk{ratio=0.5}", "ef|none"};
  constexpr std::array<const char*, 3> kAlgorithms{"", "gather", "shard"};
  RandomPlan out;
  out.ranks = 1 + static_cast<int>(rng.below(4));
  const auto tensors = 1 + rng.below(4);
  for (std::uint64_t t = 0; t < tensors; ++t) {
    out.profile.params.push_back(
        {"p" + std::to_string(t), DType::f32, {2 + static_cast<std::int64_t>(rng.below(6)), 2}});
    out.profile.forward_s.push_back(1e-3);
    out.profile.backward_s.push_back(2e-3);
  }
  out.cluster = {.ranks_per_level = {out.ranks}};
  out.cluster.links["all_reduce"] = {{.latency_s = 1e-4, .bytes_per_s = 1e6}};
  out.plan = data_parallel_plan(out.profile.params, random_grouping(rng, out.profile.params),
                                out.ranks, parse_chain(kForms[rng.below(kForms.size())]),
                                1 + static_cast<int>(rng.below(3)));
  for (Exchange& exchange : out.plan.exchanges) {
    if (exchange.bucket < 0) continue;
    exchange.priority = static_cast<int>(rng.below(3));
    exchange.chunk = static_cast<Bytes>(rng.below(3)) * 16;
  }
  const std::string algorithm = kAlgorithms[rng.below(kAlgorithms.size())];
  for (Exchange& exchange : out.plan.exchanges)
    if (exchange.bucket >= 0) exchange.algorithm = algorithm;
  if (rng.below(2) == 0) return out;
  const Fault& fault = plan_faults()[rng.below(plan_faults().size())];
  fault.make(out.plan, out.ranks);
  out.sound = false;
  out.wrong = fault.name;
  return out;
}

}  // namespace thinwire::test
