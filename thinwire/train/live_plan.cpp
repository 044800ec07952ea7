// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/live_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "thinwire/codec/memory.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/median.h"
#include "thinwire/core/text.h"
#include "thinwire/train/gradient_sync.h"
#include "thinwire/train/profiler.h"

namespace thinwire {
namespace {

constexpr std::int64_t kUnmeasured = 2;  // the engine learns in one, buffers are made in the next
constexpr std::int64_t kMeasured = 6;
constexpr double kWorthIt = 0.9;  // of the old plan's step: another one takes over
constexpr double kAnother = 1.3;  // times its computation: the rank has become slow, or quick

}  // namespace

LivePlan::LivePlan(GradientSync& sync, Comm& world, LivePlanOptions options)
    : sync_(sync), world_(world), options_(std::move(options)), team_(&world) {
  for (const std::string& form : options_.forms) check_form(form);
  if (world.size() > 1)
    must_agree(*world.membership(), "the forms to choose from",
               fmt::format("{}", fmt::join(options_.forms, ";")));
  start_anew();
}

LivePlan::LivePlan(GradientSync& sync, Comm& world, LivePlanOptions options, AutoPlan planned)
    : LivePlan(sync, world, std::move(options)) {
  planned_ = std::move(planned);
  drift_.expect(planned_->choice.chosen.step_s, false);
}

void LivePlan::say(const std::string& text) const {
  if (world_.rank() == 0 && options_.say) options_.say(text);
}

/// The engine has another plan than it was given: its model has changed.
void LivePlan::start_anew() {
  planned_.reset();
  digest_ = sync_.plan_digest();
  first_step_ = sync_.step();
  step_before_ = -1;
  window_.clear();
  windows_ = 0;
  compute_s_.clear();
}

bool LivePlan::between_steps() {
  if (world_.size() == 1 || !sync_.follow_change()) return false;
  if (sync_.plan_digest() != digest_) start_anew();
  watch();
  const std::uint64_t before = digest_;
  const auto steps = static_cast<std::int64_t>(window_.step_s.size());
  if (!planned_) {
    if (steps >= kUnmeasured + kMeasured) choose_first();
  } else if (options_.replan && steps >= drift_.window()) {
    // Everybody's medians, on all ranks: the slowest step, and each rank's computation.
    std::vector<double> all(static_cast<std::size_t>(2 * world_.size()));
    all[static_cast<std::size_t>(2 * world_.rank())] = median(window_.step_s);
    all[static_cast<std::size_t>(2 * world_.rank() + 1)] = median(window_.compute_s);
    team_.sum(TeamMessage::window, sync_.step(), all).wait();
    std::vector<Seconds> compute_s;
    Seconds step_s = 0;
    for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
      step_s = std::max(step_s, all[2 * rank]);
      compute_s.push_back(all[2 * rank + 1]);
    }
    window_.clear();
    // The first window after a change makes buffers, and finds the rate of new connections.
    if (windows_++ > 0) look(step_s, compute_s);
  }
  began_ = Clock::now();
  step_before_ = sync_.step();
  return digest_ != before;
}

/// Takes down the step that has ended.
void LivePlan::watch() {
  if (step_before_ < 0 || sync_.step() != step_before_ + 1) return;
  if (planned_ && !options_.replan) return;
  const Seconds step_s = std::chrono::duration<double>(Clock::now() - began_).count();
  const StepStats& stats = sync_.last_step();
  window_.step_s.push_back(step_s);
  window_.compute_s.push_back(stats.compute_s);
  window_.rest_s.push_back(std::max(0.0, step_s - stats.compute_s - stats.exposed_s));
}

void LivePlan::choose_first() {
  say("plan=auto: measuring the links and the forms, for some seconds");
  const auto skip = static_cast<std::ptrdiff_t>(kUnmeasured);
  const Profile own =
      profile_of(sync_.trace(), sync_.plan().tensors, first_step_ + kUnmeasured, sync_.step(),
                 median({window_.rest_s.begin() + skip, window_.rest_s.end()}));
  AutoPlan planned;
  planned.measured = measure_beside(own, world_, options_.forms);
  Choice choice = choose(planned.measured, options_.forms, world_);
  planned_ = std::move(planned);
  take(std::move(choice));
}

void LivePlan::take(Choice choice) {
  sync_.set_plan(to_json(choice.plan));
  digest_ = sync_.plan_digest();
  drift_.expect(choice.chosen.step_s, false);
  say(fmt::format("step {}: plan=auto: {}", sync_.step(), choice.verdict));
  planned_->choice = std::move(choice);
  window_.clear();
  windows_ = 0;
  compute_s_.clear();
}

void LivePlan::look(Seconds step_s, const std::vector<Seconds>& compute_s) {
  const Seconds expected = drift_.expected_s();
  if (!drift_.add(step_s)) {
    if (compute_s_.empty() && step_s < 1.2 * expected) compute_s_ = compute_s;
    return;
  }
  say(fmt::format("step {}: steps take {}, {} was expected; measuring the links again",
                  sync_.step(), format_seconds(step_s), format_seconds(expected)));
  MeasuredTraining now = planned_->measured;
  MeasuredCluster network = measure_links(now.profile, world_);
  for (std::size_t rank = 0; rank < compute_s_.size(); ++rank) {
    const double factor = compute_s[rank] / compute_s_[rank];
    if (factor < kAnother && factor > 1 / kAnother) continue;
    now.cluster.speed[rank] /= factor;
    say(fmt::format("rank {} computes {} a step, {} before", rank, format_seconds(compute_s[rank]),
                    format_seconds(compute_s_[rank])));
  }
  const Link before = now.cluster.links.at("all_reduce")[0];
  now.cluster.links = std::move(network.cluster.links);
  now.residual = std::move(network.residual);
  const Link link = now.cluster.links.at("all_reduce")[0];
  say(fmt::format("an all_reduce takes {} and {}, {} and {} before", format_seconds(link.latency_s),
                  format_rate(link.bytes_per_s), format_seconds(before.latency_s),
                  format_rate(before.bytes_per_s)));
  Choice choice = choose(now, options_.forms, world_);
  std::string verdict;
  if (world_.rank() == 0) {
    const Seconds stays = steady_step_s(sync_.plan(), now.profile, now.cluster);
    if (choice.chosen.step_s > kWorthIt * stays)
      verdict = fmt::format("the plan stays: {} a step, {} with the best other",
                            format_seconds(stays), format_seconds(choice.chosen.step_s));
  }
  verdict = team_.from_first("whether the plan stays", verdict);
  planned_->measured = std::move(now);
  if (verdict.empty()) return take(std::move(choice));
  say(fmt::format("step {}: {}", sync_.step(), verdict));
  drift_.expect(step_s, true);
  compute_s_ = compute_s;
}

}  // namespace thinwire
