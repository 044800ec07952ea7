// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

bool same_kind(const Exchange& a, const Exchange& b) {
  return a.what == b.what && a.pattern == b.pattern && a.start.phase == b.start.phase;
}

bool same_purpose(const Exchange& a, const Exchange& b) {
  return same_kind(a, b) && a.start == b.start;
}

std::string words(const Exchange& e) {
  return fmt::format("{} of {}s at {}", to_string(e.pattern), to_string(e.what),
                     to_string(e.start.phase));
}

}  // namespace

PlanBuilder::PlanBuilder(PlanInputs inputs) : inputs_(std::move(inputs)) {}

int PlanBuilder::add(Role what, Pattern pattern, Combine combine, const When& start,
                     const When& need) {
  Exchange one{.what = what,
               .pattern = pattern,
               .combine = combine,
               .form = inputs_.form,
               .start = start,
               .need = need,
               .algorithm = inputs_.algorithm};
  for (const Exchange& other : declared_)
    if (same_purpose(one, other))
      throw ConfigError(fmt::format("the strategy declares the {} twice", words(one)));
  declared_.push_back(std::move(one));
  return static_cast<int>(declared_.size()) - 1;
}

Plan PlanBuilder::plan() const {
  Plan plan{.tensors = inputs_.tensors, .grouping = inputs_.grouping};
  Group all{.ranks = std::vector<Rank>(static_cast<std::size_t>(inputs_.ranks))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  plan.groups.push_back(std::move(all));
  for (const Exchange& declared : declared_)
    for (std::size_t bucket = 0; bucket < plan.grouping.size(); ++bucket) {
      Exchange exchange = declared;
      exchange.id = static_cast<int>(plan.exchanges.size());
      exchange.bucket = static_cast<int>(bucket);
      if (exchange.what == Role::gradient && exchange.start.every == 1) {
        exchange.start.every = inputs_.every;
        exchange.start.offset =
            static_cast<int>((bucket + 1) % static_cast<std::size_t>(inputs_.every));
        exchange.need.every = exchange.start.every;
        exchange.need.offset = exchange.start.offset;
      }
      exchange.payload =
          payload_bytes(inputs_.form, tensors_of(plan.grouping[bucket], plan.tensors)).value_or(0);
      plan.exchanges.push_back(std::move(exchange));
    }
  add_step_header(plan);
  return plan;
}

int declare_gradient_mean(PlanBuilder& plan) {
  return plan.add(Role::gradient, Pattern::all_reduce, Combine::mean, {.phase = Phase::grad_ready},
                  {.phase = Phase::update_begin});
}

std::vector<int> exchanges_of(const Plan& plan, const Exchange& declared) {
  std::vector<int> ids(plan.grouping.size(), -1), times(plan.grouping.size(), 0);
  std::vector<bool> exact(plan.grouping.size());
  for (const Exchange& exchange : plan.exchanges) {
    if (exchange.bucket < 0 || !same_kind(exchange, declared)) continue;
    const auto bucket = static_cast<std::size_t>(exchange.bucket);
    const bool same = same_purpose(exchange, declared);
    if (!same && exact[bucket]) continue;
    times[bucket] = same && !exact[bucket] ? 1 : times[bucket] + 1;
    exact[bucket] = same;
    ids[bucket] = exchange.id;
  }
  for (std::size_t bucket = 0; bucket < ids.size(); ++bucket)
    if (times[bucket] != 1)
      throw ConfigError(
          fmt::format("the plan has {} exchanges for the {} of bucket {}; the "
                      "strategy needs one",
                      times[bucket], words(declared), bucket));
  return ids;
}

std::size_t step_header_words(std::size_t tensors) { return 4 + 2 * ((tensors + 63) / 64); }

int step_header(const Plan& plan) {
  for (const Exchange& exchange : plan.exchanges)
    if (exchange.what == Role::statistic && exchange.pattern == Pattern::all_gather &&
        exchange.bucket == -1)
      return exchange.id;
  return -1;
}

void add_step_header(Plan& plan) {
  const auto moves_gradients = [](const Exchange& e) { return e.what == Role::gradient; };
  if (step_header(plan) >= 0 ||
      std::none_of(plan.exchanges.begin(), plan.exchanges.end(), moves_gradients))
    return;
  plan.exchanges.push_back(
      {.id = static_cast<int>(plan.exchanges.size()),
       .what = Role::statistic,
       .bucket = -1,
       .pattern = Pattern::all_gather,
       .combine = Combine::concat,
       .start = {.phase = Phase::backward_end},
       .need = {.phase = Phase::update_begin},
       .payload = 8 * static_cast<Bytes>(step_header_words(plan.tensors.size()))});
}

}  // namespace thinwire
