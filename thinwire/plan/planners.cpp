// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/planners.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "thinwire/core/error.h"

namespace thinwire {

#define TW_PLUGIN(name) void register_##name(GroupRegistry& registry);
#include "builtin_plan_grouping.inc"
#undef TW_PLUGIN

const GroupRegistry& groupings() {
  static const GroupRegistry registry = [] {
    GroupRegistry out("grouping");
#define TW_PLUGIN(name) register_##name(out);
#include "builtin_plan_grouping.inc"
#undef TW_PLUGIN
    return out;
  }();
  return registry;
}

std::string grouping_fault(const Grouping& grouping, const std::vector<TensorDesc>& tensors) {
  std::vector<std::vector<Slice>> found(tensors.size());
  for (std::size_t b = 0; b < grouping.size(); ++b) {
    const auto& slices = grouping[b].slices;
    if (slices.empty()) return fmt::format("bucket {} has no slices", b);
    for (const auto& slice : slices) {
      if (slice.tensor < 0 || slice.tensor >= static_cast<int>(tensors.size()))
        return fmt::format("bucket {}: tensor must be in [0, {}), got {}", b, tensors.size(),
                           slice.tensor);
      const auto& tensor = tensors[static_cast<std::size_t>(slice.tensor)];
      const auto& first = tensors[static_cast<std::size_t>(slices[0].tensor)];
      if (slice.begin < 0 || slice.end < slice.begin || slice.end > elements(tensor))
        return fmt::format("bucket {}: [{}, {}) is no part of tensor {} ('{}') of {} elements", b,
                           slice.begin, slice.end, slice.tensor, tensor.name, elements(tensor));
      if (tensor.dtype != first.dtype)
        return fmt::format("bucket {} mixes {} ('{}') and {} ('{}')", b, to_string(first.dtype),
                           first.name, to_string(tensor.dtype), tensor.name);
      found[static_cast<std::size_t>(slice.tensor)].push_back(slice);
    }
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    auto& slices = found[t];
    std::sort(slices.begin(), slices.end(),
              [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
    std::int64_t at = 0;
    for (const auto& slice : slices) {
      if (slice.begin > at) break;
      if (slice.begin < at && slice.begin < slice.end)
        return fmt::format("element {} of tensor {} ('{}') stands in two buckets", slice.begin, t,
                           tensors[t].name);
      at = slice.end;
    }
    if (at < elements(tensors[t]))
      return fmt::format("element {} of tensor {} ('{}') stands in no bucket", at, t,
                         tensors[t].name);
  }
  return "";
}

Grouping make_grouping(const Spec& spec, const GroupInput& input) {
  return make_grouped(spec, input).grouping;
}

Grouped make_grouped(const Spec& spec, const GroupInput& input) {
  validate(input.profile);
  validate(input.cluster);
  Grouped out = groupings().find(spec.name).make(input, spec);
  // A planner's own bug, never bad input: the user can do nothing about it.
  if (const auto why = grouping_fault(out.grouping, input.profile.params); !why.empty())
    throw std::logic_error(fmt::format("internal error: grouping '{}': {}", to_string(spec), why));
  return out;
}

Grouped make_unmeasured_grouping(const Spec& spec, const std::vector<TensorDesc>& params,
                                 int ranks) {
  if (params.empty()) return {};
  const std::vector<Seconds> none(params.size(), 0);
  const Profile profile{.params = params, .forward_s = none, .backward_s = none};
  Cluster cluster{.ranks_per_level = {ranks}};
  cluster.links["all_reduce"] = {{.latency_s = 1e-4, .bytes_per_s = 1e8}};
  return make_grouped(spec, {.profile = profile, .cluster = cluster});
}

AffineCost all_reduce_cost(const Cluster& cluster) {
  AffineCost out;
  const auto links = cluster.links.find("all_reduce");
  for (std::size_t level = 0; level < cluster.ranks_per_level.size(); ++level) {
    if (cluster.ranks_per_level[level] <= 1) continue;
    const Link& link = links->second.at(level);
    out.start_s += link.latency_s;
    out.per_byte_s += 1 / link.bytes_per_s;
  }
  return out;
}

double payload_bytes(const Bucket& bucket, const GroupInput& input) {
  if (input.payload) return static_cast<double>(input.payload(bucket));
  Bytes dense = 0;
  for (const auto& slice : bucket.slices)
    dense += (slice.end - slice.begin) *
             dtype_bytes(input.profile.params[static_cast<std::size_t>(slice.tensor)].dtype);
  return dense == 0 ? 0 : input.fixed_bytes + input.bytes_per_byte * static_cast<double>(dense);
}

Grouping fill_backward(const std::vector<TensorDesc>& params,
                       const std::function<bool(DType dtype, Bytes has, Bytes next)>& full) {
  struct Open {
    std::vector<int> tensors;
    Bytes bytes = 0;
  };
  std::map<DType, Open> open;
  std::vector<std::vector<int>> closed;
  for (int tensor = static_cast<int>(params.size()); tensor-- > 0;) {
    const auto& desc = params[static_cast<std::size_t>(tensor)];
    Open& bucket = open[desc.dtype];
    if (!bucket.tensors.empty() && full(desc.dtype, bucket.bytes, dense_bytes(desc))) {
      closed.push_back(std::move(bucket.tensors));
      bucket = {};
    }
    bucket.tensors.push_back(tensor);
    bucket.bytes += dense_bytes(desc);
  }
  for (auto& [dtype, bucket] : open) closed.push_back(std::move(bucket.tensors));
  // A bucket is ready when the last of its tensors is, the one with the smallest number.
  std::sort(closed.begin(), closed.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  Grouping out;
  out.reserve(closed.size());
  for (const auto& tensors : closed) out.push_back(whole_tensors(tensors, params));
  return out;
}

Grouping fill_as_ddp(const std::vector<TensorDesc>& params, Bytes first, Bytes cap) {
  std::set<DType> begun;
  return fill_backward(params, [&](DType dtype, Bytes has, Bytes) {
    const bool full = has >= (begun.contains(dtype) ? cap : first);
    if (full) begun.insert(dtype);
    return full;
  });
}

Bucket whole_tensors(const std::vector<int>& tensors, const std::vector<TensorDesc>& descs) {
  Bucket out;
  for (const int tensor : tensors)
    out.slices.push_back({tensor, 0, elements(descs[static_cast<std::size_t>(tensor)])});
  return out;
}

std::vector<Seconds> slowest_ready_times(const GroupInput& input) {
  auto ready = ready_times(input.profile);
  const auto& speed = input.cluster.speed;
  if (!speed.empty()) {
    const double slowest = *std::min_element(speed.begin(), speed.end());
    for (auto& seconds : ready) seconds /= slowest;
  }
  return ready;
}

Seconds predict_step_s(const Grouped& grouped, const GroupInput& input) {
  const auto ready = slowest_ready_times(input);
  const auto cost = all_reduce_cost(input.cluster);
  const Seconds computed = *std::max_element(ready.begin(), ready.end());
  Seconds all = 0;
  for (int step = 0; step < grouped.every; ++step) {
    Seconds now = 0;
    for (std::size_t b = 0; b < grouped.grouping.size(); ++b) {
      if ((step + static_cast<std::int64_t>(b) + 1) % grouped.every != 0) continue;
      const Bucket& bucket = grouped.grouping[b];
      for (const auto& slice : bucket.slices)
        now = std::max(now, ready[static_cast<std::size_t>(slice.tensor)]);
      now += cost(payload_bytes(bucket, input));
    }
    all += std::max(now, computed);
  }
  return all / grouped.every;
}

int interval_of_ratio(double communication_over_computation) {
  if (!(communication_over_computation >= 0))
    throw ConfigError(
        fmt::format("covap: the ratio of communication to computation must be at "
                    "least 0, got {}",
                    communication_over_computation));
  constexpr double kMost = 1 << 20;
  return static_cast<int>(std::clamp(std::ceil(communication_over_computation), 1.0, kMost));
}

}  // namespace thinwire
