// SPDX-License-Identifier: Apache-2.0
// Small layer lists and clusters for planner tests, written as the paper writes them: layer 1
// first.
#pragma once
#include <string>
#include <vector>

#include "thinwire/core/rng.h"
#include "thinwire/plan/planners.h"

namespace thinwire::test {

struct Model {
  Profile profile;
  Cluster cluster;
  GroupInput input() const { return {.profile = profile, .cluster = cluster}; }
  Grouping group(const std::string& spec) const { return make_grouping(parse_spec(spec), input()); }
  Seconds step_s(const std::string& spec) const {
    return predict_step_s(make_grouped(parse_spec(spec), input()), input());
  }
};

/// Byte tensors of p bytes; the whole forward pass stands in the first layer; two ranks.
inline Model model(Seconds t_f, const std::vector<double>& t_b, const std::vector<int>& p, double a,
                   double b) {
  Model out;
  for (std::size_t i = 0; i < p.size(); ++i) {
    out.profile.params.push_back({"layer" + std::to_string(i + 1), DType::u8, {p[i]}});
    out.profile.forward_s.push_back(i == 0 ? t_f : 0);
    out.profile.backward_s.push_back(t_b[i]);
  }
  out.cluster.ranks_per_level = {2};
  out.cluster.links["all_reduce"] = {{.latency_s = a, .bytes_per_s = 1 / b}};
  return out;
}

/// A random instance: times and sizes over three decades, start-up from nothing to more than a
/// pass.
inline Model random_model(Rng& rng, int most_layers) {
  const auto layers = 1 + rng.below(static_cast<std::uint64_t>(most_layers));
  std::vector<double> t_b;
  std::vector<int> p;
  for (std::uint64_t i = 0; i < layers; ++i) {
    t_b.push_back(static_cast<double>(rng.below(10)));
    p.push_back(1 + static_cast<int>(rng.below(rng.below(2) == 0 ? 4 : 40)));
  }
  const double a = static_cast<double>(rng.below(12)),
               b = 0.25 * static_cast<double>(1 + rng.below(8));
  return model(static_cast<double>(rng.below(5)), t_b, p, a, b);
}

/// Calls `visit` with each of the 2^(L-1) ways to cut the backward order into messages.
template <class Visit>
void each_grouping(const Model& m, Visit visit) {
  const int layers = static_cast<int>(m.profile.params.size());
  for (unsigned cuts = 0; cuts < 1u << (layers - 1); ++cuts) {
    Grouping grouping(1);
    for (int at = 0; at < layers; ++at) {
      const int tensor = layers - 1 - at;
      grouping.back().slices.push_back(
          {tensor, 0, elements(m.profile.params[static_cast<std::size_t>(tensor)])});
      if (at + 1 < layers && (cuts >> at & 1) != 0) grouping.emplace_back();
    }
    visit(grouping);
  }
}

/// The shortest predicted step over all of them.
inline Seconds brute_force_s(const Model& m) {
  Seconds best = 1e300;
  each_grouping(m, [&](const Grouping& grouping) {
    best = std::min(best, predict_step_s(grouping, m.input()));
  });
  return best;
}

/// The tensors of each bucket, as numbers of the paper (1 is the input side).
inline std::vector<std::vector<int>> layers_of(const Grouping& grouping) {
  std::vector<std::vector<int>> out;
  for (const auto& bucket : grouping) {
    auto& layers = out.emplace_back();
    for (const auto& slice : bucket.slices) layers.push_back(slice.tensor + 1);
  }
  return out;
}

}  // namespace thinwire::test
