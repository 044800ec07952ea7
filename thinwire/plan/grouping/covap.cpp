// SPDX-License-Identifier: Apache-2.0
// Meng, Sun, "Near-Linear Scaling Data Parallel Training with Overlapping-Aware Gradient
// Compression", 2023, https://arxiv.org/abs/2311.04499. Buckets as PyTorch DDP fills them, large
// ones cut, of which every I-th is sent in a step: bucket s of all where (step + s + 1) mod I = 0,
// about 1/I of the bytes.
//   m = median elements of a bucket;  k = floor(n / m - 0.3)
//   shards(bucket of n elements) = 1 if k <= 0, else min(k + 1, I)
//   I = ceil(communication / backward), measured, unless given
// Bytes: all of them in I steps. Messages: a bucket at most I.
// Departs from the paper: shards are contiguous (its code takes every c-th element, which adds
// nothing and reads memory in strides), and of an even number of buckets the upper median is taken.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

std::int64_t elements_of(const Bucket& bucket) {
  std::int64_t out = 0;
  for (const Slice& slice : bucket.slices) out += slice.end - slice.begin;
  return out;
}

/// `shards` buckets of elements as equal as can be, in the order of the one.
void cut(const Bucket& whole, std::int64_t shards, Grouping& out) {
  const std::int64_t total = elements_of(whole);
  std::size_t at = 0;
  std::int64_t from = 0;  // in slice `at`
  for (std::int64_t s = 0; s < shards; ++s) {
    std::int64_t left = total * (s + 1) / shards - total * s / shards;
    Bucket part;
    while (at < whole.slices.size()) {
      const Slice& slice = whole.slices[at];
      const std::int64_t take = std::min(left, slice.end - slice.begin - from);
      if (take > 0 || slice.begin == slice.end)
        part.slices.push_back({slice.tensor, slice.begin + from, slice.begin + from + take});
      left -= take;
      from += take;
      if (slice.begin + from < slice.end) break;
      from = 0;
      ++at;
      if (left == 0 && s + 1 < shards) break;
    }
    if (!part.slices.empty()) out.push_back(std::move(part));
  }
}

/// The least interval at which the wire keeps up with the backward pass.
std::int64_t measured_interval(const GroupInput& input) {
  const auto& times = input.profile.backward_s;
  const Seconds backward = std::accumulate(times.begin(), times.end(), 0.0);
  double bytes = 0;
  for (const TensorDesc& desc : input.profile.params)
    bytes += static_cast<double>(dense_bytes(desc));
  const Seconds wire = all_reduce_cost(input.cluster)(bytes);
  if (backward <= 0)
    throw ConfigError(
        "covap: interval must be given where no backward times have been measured, got auto");
  return interval_of_ratio(wire / backward);
}

Grouped covap(const GroupInput& input, const Spec& spec) {
  SpecReader in(spec);
  const Bytes first = in.bytes("first", Bytes{1} << 20), cap = in.bytes("bytes", Bytes{25} << 20);
  const bool measured = in.text("interval", "auto") == "auto";
  const std::int64_t given = measured ? 0 : in.integer("interval", 1);
  const std::string skipped = in.text("skipped", "zero");
  in.finish();
  if (first < 1) throw ConfigError(fmt::format("covap: first must be at least 1, got {}", first));
  if (cap < 1) throw ConfigError(fmt::format("covap: bytes must be at least 1, got {}", cap));
  constexpr std::int64_t kMost = 1 << 20;
  if (!measured && (given < 1 || given > kMost))
    throw ConfigError(
        fmt::format("covap: interval must be auto or in [1, {}], got {}", kMost, given));
  if (skipped != "zero" && skipped != "frozen")
    throw ConfigError(fmt::format("covap: skipped must be zero or frozen, got '{}'", skipped));
  const std::int64_t interval = measured ? measured_interval(input) : given;

  const Grouping whole = fill_as_ddp(input.profile.params, first, cap);
  std::vector<std::int64_t> sizes;
  sizes.reserve(whole.size());
  for (const Bucket& bucket : whole) sizes.push_back(elements_of(bucket));
  Grouped out;
  out.every = static_cast<int>(interval);
  out.frozen = skipped == "frozen";
  if (sizes.empty()) return out;
  auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const auto median = static_cast<double>(std::max<std::int64_t>(*middle, 1));
  for (const Bucket& bucket : whole) {
    const auto more =
        static_cast<std::int64_t>(static_cast<double>(elements_of(bucket)) / median - 0.3);
    cut(bucket, more <= 0 ? 1 : std::min(more + 1, interval), out.grouping);
  }
  return out;
}

}  // namespace

void register_covap(GroupRegistry& registry) {
  registry.add("covap", covap,
               "buckets as DDP fills them, large ones cut, one in `interval` sent each step "
               "{interval=auto, skipped=zero or frozen, bytes=25MiB, first=1MiB}");
}

}  // namespace thinwire
