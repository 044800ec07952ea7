// SPDX-License-Identifier: Apache-2.0
// What a plan must be to run. The checks stand in the order in which a reader meets the parts of a
// plan file.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/payload.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw ConfigError(fmt::format(text, std::forward<Args>(args)...));
}

void check_tensors(const Plan& plan) {
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (elements(plan.tensors[i]) < 0)
      refuse("tensor {} ('{}'): the shape [{}] is negative or too large", i, plan.tensors[i].name,
             fmt::join(plan.tensors[i].shape, ","));
}

void check_group(const Group& group, const std::string& where, int ranks) {
  if (group.ranks.empty()) refuse("{} has no ranks", where);
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    const Rank rank = group.ranks[i];
    if (rank < 0 || rank >= ranks)
      refuse("{} has rank {}, but the world size is {} (ranks 0 to {})", where, rank, ranks,
             ranks - 1);
    if (i > 0 && rank <= group.ranks[i - 1])
      refuse("{}: ranks must rise, got {} after {}", where, rank, group.ranks[i - 1]);
  }
}

void check_when(const When& when, std::string_view which, int exchange) {
  if (when.every < 1)
    refuse("exchange {}: {} every must be at least 1, got {}", exchange, which, when.every);
  if (when.offset < 0 || when.offset >= when.every)
    refuse("exchange {}: {} offset must be in [0, every = {}), got {}", exchange, which, when.every,
           when.offset);
  if (when.lag < 0)
    refuse("exchange {}: {} lag must be at least 0, got {}", exchange, which, when.lag);
}

void check_times(const Exchange& e) {
  check_when(e.start, "start", e.id);
  check_when(e.need, "need", e.id);
  if (e.start.lag != 0)
    refuse("exchange {}: lag belongs to need, got start lag {}", e.id, e.start.lag);
  if (e.need.lag == 0 && e.need.phase < e.start.phase)
    refuse(
        "exchange {}: needed at {} before it starts at {}; a later step needs lag of at least 1, "
        "got 0",
        e.id, to_string(e.need.phase), to_string(e.start.phase));
}

/// Which ways to combine have a meaning for a pattern.
bool combines(Pattern pattern, Combine combine) {
  switch (pattern) {
    case Pattern::all_reduce:
    case Pattern::reduce_scatter:
      return combine != Combine::mix && combine != Combine::concat && combine != Combine::replace;
    case Pattern::all_gather:
      return combine == Combine::concat;
    case Pattern::broadcast:
    case Pattern::send_recv:
    case Pattern::stash:
      return combine == Combine::replace;
    case Pattern::mix:
      return combine == Combine::mix;
    default:
      return true;
  }
}

/// Names and options of the chain.
void check_form(const Plan& plan, const Exchange& e) {
  const auto& names = memory_names();
  for (std::size_t i = 0; i + 1 < e.form.size(); ++i)
    if (std::find(names.begin(), names.end(), e.form[i].name) == names.end())
      refuse("exchange {}: {}", e.id, unknown_name("memory", e.form[i].name, names));
  if (e.bucket < 0) return;
  try {
    if (!e.form.empty()) payloads().find(e.form.back().name);
    payload_bytes(e.form,
                  tensors_of(plan.grouping[static_cast<std::size_t>(e.bucket)], plan.tensors));
  } catch (const ConfigError& error) {
    refuse("exchange {}: {}", e.id, error.what());
  }
}

void check_exchange(const Plan& plan, std::size_t position, int ranks) {
  const Exchange& e = plan.exchanges[position];
  const int buckets = static_cast<int>(plan.grouping.size());
  const int groups = static_cast<int>(plan.groups.size());
  if (e.id != static_cast<int>(position))
    refuse("exchange {}: its id must be its position, got {}", position, e.id);
  if (e.bucket < -1 || e.bucket >= buckets)
    refuse("exchange {}: bucket must be in [-1, {}), got {}", e.id, buckets, e.bucket);
  if (e.bucket == -1 && e.what == Role::gradient)
    refuse("exchange {}: a gradient exchange needs a bucket, got -1", e.id);
  if (e.group < 0 || e.group >= groups)
    refuse("exchange {}: group must be in [0, {}), got {}", e.id, groups, e.group);
  check_group(plan.groups[static_cast<std::size_t>(e.group)],
              fmt::format("exchange {}: its group {}", e.id, e.group), ranks);
  if (!combines(e.pattern, e.combine))
    refuse("exchange {}: {} cannot combine by {}", e.id, to_string(e.pattern),
           to_string(e.combine));
  check_times(e);
  if (e.payload < 0)
    refuse("exchange {}: payload_bytes must be at least 0, got {}", e.id, e.payload);
  if (e.chunk < 0) refuse("exchange {}: chunk_bytes must be at least 0, got {}", e.id, e.chunk);
  if (const auto why = algorithm_fault(e.algorithm); !why.empty())
    refuse("exchange {}: {}", e.id, why);
  check_form(plan, e);
}

void check_schedule(const Plan& plan, int ranks) {
  if (!plan.schedule.empty() && static_cast<int>(plan.schedule.size()) != ranks)
    refuse("schedule: {} ranks need as many lists, got {}", ranks, plan.schedule.size());
  for (std::size_t rank = 0; rank < plan.schedule.size(); ++rank)
    for (std::size_t i = 0; i < plan.schedule[rank].size(); ++i) {
      const Op& op = plan.schedule[rank][i];
      if (op.index < 0 || op.microbatch < 0)
        refuse(
            "schedule of rank {}, entry {}: index and microbatch must be at least 0, got {} and {}",
            rank, i, op.index, op.microbatch);
      if (op.kind == OpKind::exchange && op.index >= static_cast<int>(plan.exchanges.size()))
        refuse("schedule of rank {}, entry {}: there is no exchange {}", rank, i, op.index);
      for (const int before : op.after)
        if (before < 0 || before >= static_cast<int>(i))
          refuse("schedule of rank {}, entry {}: it can only come after earlier entries, got {}",
                 rank, i, before);
    }
}

void check_maps(const Plan& plan, int ranks) {
  for (std::size_t i = 0; i < plan.shards.size(); ++i)
    for (const std::int32_t owner : plan.shards[i].owner)
      if (owner < 0 || owner >= ranks)
        refuse("shard map {}: owner {} is no rank of a world of {}", i, owner, ranks);
  for (std::size_t i = 0; i < plan.halos.size(); ++i) {
    const HaloMap& halo = plan.halos[i];
    if (static_cast<int>(halo.send.size()) != ranks || static_cast<int>(halo.recv.size()) != ranks)
      refuse("halo map {}: {} ranks need as many send and recv lists, got {} and {}", i, ranks,
             halo.send.size(), halo.recv.size());
    for (const auto& peer : halo.send)
      for (const auto& row : peer)
        if (row.row < 0 || row.item < 0)
          refuse("halo map {}: row and item must be at least 0, got {} and {}", i, row.row,
                 row.item);
    for (const auto& peer : halo.recv)
      for (const auto item : peer)
        if (item < 0) refuse("halo map {}: item must be at least 0, got {}", i, item);
  }
}

}  // namespace

void validate(const Plan& plan, int ranks) {
  if (ranks < 1) refuse("a plan needs at least 1 rank, got {}", ranks);
  check_tensors(plan);
  if (!plan.grouping.empty())
    if (const auto why = grouping_fault(plan.grouping, plan.tensors); !why.empty())
      refuse("grouping: {}", why);
  for (std::size_t i = 0; i < plan.exchanges.size(); ++i) check_exchange(plan, i, ranks);
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    check_group(plan.groups[i], fmt::format("group {}", i), ranks);
  check_schedule(plan, ranks);
  check_maps(plan, ranks);
}

void validate(const Plan& plan, const Cluster& cluster) {
  validate(cluster);
  validate(plan, world_size(cluster));
}

}  // namespace thinwire
