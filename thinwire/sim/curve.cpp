// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/known_models.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/control_cost.h"
#include "thinwire/sim/search.h"
#include "thinwire/sim/strategy_cost.h"

namespace thinwire {
namespace {

using Values = std::map<std::string, double>;

/// All options, read once; which are needed depends on what is asked for.
struct Options {
  int ranks = 1, inner = 8;
  std::string model, grouping, form, algorithm, control, strategy;
  Seconds forward_s = 0, backward_s = 0, update_s = 0, start_s = 0;
  double samples = 0, payload_s_per_byte = 0, encode_s_per_byte = 0, decode_s_per_byte = 0;
  bool overlap = true, grouped = false;
  int every = 0;  ///< 0: as the grouping says
  Bytes ring_from = -1, fuse_bytes = 0;
  Seconds cycle_s = 0;
  PointToPoint wire;
  std::int64_t units = 0, parameters = 0, servers = 1, largest_unit = 0;
};

Options read(const std::map<std::string, std::string>& given) {
  const Spec spec{.name = "curve", .params = given};
  SpecReader in(spec);
  Options out;
  const auto count = [&](const char* key, std::int64_t fallback, std::int64_t least) {
    const std::int64_t value = in.integer(key, fallback);
    if (value < least || value > std::int64_t{1} << 40)
      throw ConfigError(fmt::format("curve: {} must be in [{}, 2^40], got {}", key, least, value));
    return value;
  };
  const auto amount = [&](const char* key, double fallback) {
    const double value = in.number(key, fallback);
    if (!std::isfinite(value) || value < 0)
      throw ConfigError(fmt::format("curve: {} must be finite and at least 0, got {}", key, value));
    return value;
  };
  const std::int64_t ranks = count("ranks", 1, 1);
  if (ranks > 1 << 20)
    throw ConfigError(fmt::format("curve: ranks must be at most {}, got {}", 1 << 20, ranks));
  out.ranks = static_cast<int>(ranks);
  out.inner = static_cast<int>(std::min<std::int64_t>(count("inner", 8, 1), out.ranks));
  out.model = in.text("model", "");
  out.grouping = in.text("grouping", "wfbp");
  out.form = in.text("form", "none");
  out.algorithm = in.text("algorithm", "ring");
  out.control = in.text("control", "");
  out.strategy = in.text("strategy", "");
  out.forward_s = amount("forward_s", 0);
  out.backward_s = amount("backward_s", 0);
  out.update_s = amount("update_s", 0);
  out.start_s = amount("start_s", 0);
  out.payload_s_per_byte = amount("payload_s_per_byte", 0);
  out.samples = amount("samples", 0);
  out.encode_s_per_byte = amount("encode_s_per_byte", 0);
  out.decode_s_per_byte = amount("decode_s_per_byte", 0);
  out.overlap = in.flag("overlap", true);
  out.grouped = in.flag("grouped", false);
  out.every = static_cast<int>(count("every", 0, 0));
  out.ring_from = in.bytes("ring_from", -1);
  out.fuse_bytes = in.bytes("fuse_bytes", 0);
  out.cycle_s = amount("cycle_s", 0);
  out.wire = {.latency_s = amount("alpha_s", 0),
              .s_per_byte = amount("s_per_byte", 0),
              .reduce_s_per_byte = amount("reduce_s_per_byte", 0)};
  out.units = count("units", 0, 0);
  out.parameters = count("parameters", 0, 0);
  out.servers = count("servers", 1, 1);
  out.largest_unit = count("largest_unit", 0, 0);
  in.finish();
  return out;
}

bool in_groups(const std::string& algorithm) {
  return algorithm == "hierarchical" || algorithm == "torus" || algorithm == "hybrid";
}

Cluster cluster_of(const Options& options) {
  Cluster out{.ranks_per_level = {options.ranks}};
  if (options.ranks == 1) return out;
  if (options.payload_s_per_byte > 0) {
    out.links["all_reduce"] = {
        {.latency_s = options.start_s, .bytes_per_s = 1 / options.payload_s_per_byte}};
    return out;
  }
  if (options.wire.s_per_byte <= 0)
    throw ConfigError("curve: s_per_byte or payload_s_per_byte must be above 0");
  const auto grouped = [&](const char* name) {
    return grouped_all_reduce_link(name, options.ranks, options.inner, options.wire);
  };
  if (options.algorithm == "hybrid") {
    out.links["all_reduce"] = {all_reduce_link("ring", options.ranks, options.wire)};
    out.links["hierarchical"] = {grouped("hierarchical")};
  } else if (in_groups(options.algorithm)) {
    out.links["all_reduce"] = {grouped(options.algorithm.c_str())};
  } else {
    out.links["all_reduce"] = {all_reduce_link(options.algorithm, options.ranks, options.wire)};
  }
  // What does not add up goes to everybody as it is: n - 1 payloads.
  const double others = options.ranks - 1;
  const double messages =
      options.algorithm == "ring" ? others : std::ceil(std::log2(options.ranks));
  out.links["gather"] = {{.latency_s = messages * options.wire.latency_s,
                          .bytes_per_s = 1 / (others * options.wire.s_per_byte)}};
  return out;
}

/// The bytes from which the ring is quicker than going through groups.
double ring_from(const Options& options, const Cluster& cluster) {
  if (options.ring_from >= 0) return static_cast<double>(options.ring_from);
  const Link &ring = cluster.links.at("all_reduce")[0],
             &grouped = cluster.links.at("hierarchical")[0];
  const double saved_s = ring.latency_s - grouped.latency_s;
  const double lost_s_per_byte = 1 / grouped.bytes_per_s - 1 / ring.bytes_per_s;
  return lost_s_per_byte > 0 ? std::max(0.0, saved_s / lost_s_per_byte) : 1e300;
}

/// As Horovod fuses: what has become ready since the last cycle goes together, up to so many bytes.
Grouping by_cycles(const Profile& profile, Seconds cycle_s, Bytes most) {
  const auto ready = ready_times(profile);
  const auto cycle = [&](int tensor) {
    return std::ceil(ready[static_cast<std::size_t>(tensor)] / cycle_s);
  };
  Grouping out;
  Bytes has = 0;
  for (int tensor = static_cast<int>(profile.params.size()); tensor-- > 0;) {
    const TensorDesc& desc = profile.params[static_cast<std::size_t>(tensor)];
    if (out.empty() || cycle(tensor) != cycle(tensor + 1) || has + dense_bytes(desc) > most) {
      out.emplace_back();
      has = 0;
    }
    out.back().slices.push_back({tensor, 0, elements(desc)});
    has += dense_bytes(desc);
  }
  return out;
}

Grouped grouped_of(const Options& options, const Profile& profile, const Cluster& cluster) {
  const GroupInput input{.profile = profile, .cluster = cluster};
  if (options.cycle_s > 0 && !options.grouped) {
    constexpr Bytes kHorovods = Bytes{64} << 20;
    return by_cycles(profile, options.cycle_s,
                     options.fuse_bytes > 0 ? options.fuse_bytes : kHorovods);
  }
  if (options.fuse_bytes > 0 && !options.grouped)
    return make_grouped(parse_spec(fmt::format("size_cap{{bytes={}}}", options.fuse_bytes)), input);
  return make_grouped(parse_spec(options.grouping), input);
}

Plan plan_of(const Options& options, const Profile& profile, const Cluster& cluster) {
  const Grouped grouped = grouped_of(options, profile, cluster);
  const int every = options.every > 0 ? options.every : grouped.every;
  Plan plan = data_parallel_plan(profile.params, grouped.grouping, options.ranks,
                                 parse_chain(options.form), every);
  std::erase_if(plan.exchanges, [](const Exchange& e) { return e.bucket < 0; });
  for (Exchange& exchange : plan.exchanges) {
    if (!options.overlap) exchange.start.phase = Phase::backward_end;
    if (options.algorithm == "hybrid" && options.ranks > 1 &&
        static_cast<double>(exchange.payload) < ring_from(options, cluster))
      exchange.algorithm = "hierarchical";
  }
  return plan;
}

void add_messages(const Plan& plan, Values& out) {
  double messages = 0, largest = 0, smallest = 0;
  for (const Exchange& exchange : plan.exchanges) {
    const auto bytes = static_cast<double>(exchange.payload);
    smallest = messages == 0 ? bytes : std::min(smallest, bytes);
    largest = std::max(largest, bytes);
    messages += 1.0 / exchange.start.every;
  }
  out["messages"] = messages;
  out["largest_bytes"] = largest;
  out["smallest_bytes"] = smallest;
}

void add_step(const Options& options, Values& out) {
  Profile profile = shared_out(known_model(options.model), options.forward_s, options.backward_s);
  profile.update_s = options.update_s;
  const auto speed = [](double s_per_byte) { return s_per_byte > 0 ? 1 / s_per_byte : 0; };
  if (options.encode_s_per_byte > 0 || options.decode_s_per_byte > 0)
    profile.codecs[to_string(std::span<const Spec>(parse_chain(options.form)))] = {
        .encode_bytes_per_s = speed(options.encode_s_per_byte),
        .decode_bytes_per_s = speed(options.decode_s_per_byte)};
  const Cluster cluster = cluster_of(options);
  const Plan plan = plan_of(options, profile, cluster);
  const Seconds compute_s = options.forward_s + options.backward_s + options.update_s;
  const Seconds step_s = steady_step_s(plan, profile, cluster);
  out["compute_s"] = compute_s;
  out["step_s"] = step_s;
  out["exposed_s"] = step_s - compute_s;
  out["efficiency"] = compute_s / step_s;
  out["speedup"] = options.ranks * compute_s / step_s;
  out["bytes"] = static_cast<double>(bytes_per_step(plan, cluster));
  double dense = 0;
  for (const TensorDesc& tensor : profile.params) dense += static_cast<double>(dense_bytes(tensor));
  const AffineCost whole = all_reduce_cost(cluster);
  out["all_reduce_s"] = whole(dense);
  if (options.wire.latency_s > 0 && options.algorithm != "hybrid")
    out["start_messages"] = whole.start_s / options.wire.latency_s;
  if (options.samples > 0) out["samples_per_s"] = options.ranks * options.samples / step_s;
  add_messages(plan, out);
}

}  // namespace

std::map<std::string, double> curve_point(const std::map<std::string, std::string>& given) {
  const Options options = read(given);
  Values out;
  if (!options.model.empty()) add_step(options, out);
  if (!options.control.empty()) {
    const ControlCost cost =
        control_cost(options.control, options.units, options.ranks, options.wire);
    out["control_bytes"] = cost.received;
    out["control_messages"] = static_cast<double>(cost.messages);
    out["control_s"] = cost.seconds;
  }
  if (!options.strategy.empty()) {
    const StrategyCost cost = strategy_cost(options.strategy, options.parameters, options.ranks,
                                            options.servers, options.largest_unit);
    out["state_bytes"] = static_cast<double>(cost.worker_state);
    out["sent_bytes"] = static_cast<double>(cost.worker_sent);
    out["server_state_bytes"] = static_cast<double>(cost.server_state);
    out["server_bytes"] = static_cast<double>(cost.server_sent);
  }
  if (out.empty()) throw ConfigError("curve: one of model, control and strategy is needed");
  return out;
}

}  // namespace thinwire
