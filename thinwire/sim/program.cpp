// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/sim/cost.h"

namespace thinwire {
namespace {

void check_tensors(const Plan& plan, const Profile& profile) {
  if (plan.tensors.size() != profile.params.size())
    throw ConfigError(fmt::format("the plan has {} tensors, the profile {}", plan.tensors.size(),
                                  profile.params.size()));
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (!(plan.tensors[i] == profile.params[i]))
      throw ConfigError(
          fmt::format("tensor {} is '{}' in the plan and '{}' in the profile, or of "
                      "another shape or type",
                      i, plan.tensors[i].name, profile.params[i].name));
}

class Writer {
 public:
  Writer(const Plan& plan, const Profile& profile) : plan_(plan), profile_(profile) {
    needed_by_forward_.resize(plan.tensors.size());
    for (const Exchange& e : plan.exchanges) {
      firsts_.push_back(first_of(e));
      if (e.need.phase == Phase::step_begin && e.bucket >= 0)
        needed_by_forward_[static_cast<std::size_t>(firsts_.back())].push_back(&e);
    }
  }

  std::vector<Action> step() {
    const int tensors = static_cast<int>(plan_.tensors.size());
    starts(Phase::step_begin);
    for (const Exchange& e : plan_.exchanges)
      if (e.need.phase == Phase::step_begin && e.bucket < 0) need(e);
    for (int tensor = 0; tensor < tensors; ++tensor) {
      for (const Exchange* e : needed_by_forward_[static_cast<std::size_t>(tensor)]) need(*e);
      compute(OpKind::forward, tensor, profile_.forward_s);
    }
    std::size_t next = 0;  // of the exchanges of gradients, which start in plan order
    const auto gradients = of_phase(Phase::grad_ready);
    for (int tensor = tensors; tensor-- > 0;) {
      compute(OpKind::backward, tensor, profile_.backward_s);
      for (; next < gradients.size() && first(*gradients[next]) >= tensor; ++next)
        start(*gradients[next]);
    }
    for (; next < gradients.size(); ++next) start(*gradients[next]);
    pass(Phase::backward_end);
    pass(Phase::update_begin);
    out_.push_back({.what = Action::update, .seconds = profile_.update_s});
    pass(Phase::update_end);
    return std::move(out_);
  }

 private:
  std::vector<const Exchange*> of_phase(Phase phase) const {
    std::vector<const Exchange*> out;
    for (const Exchange& e : plan_.exchanges)
      if (e.start.phase == phase) out.push_back(&e);
    return out;
  }
  /// The first tensor of its bucket, whose gradient is ready last; -1 without a bucket.
  int first_of(const Exchange& e) const {
    if (e.bucket < 0) return -1;
    int first = static_cast<int>(plan_.tensors.size());
    for (const Slice& slice : plan_.grouping[static_cast<std::size_t>(e.bucket)].slices)
      first = std::min(first, slice.tensor);
    return first;
  }
  int first(const Exchange& e) const { return firsts_[static_cast<std::size_t>(e.id)]; }
  void starts(Phase phase) {
    for (const Exchange* e : of_phase(phase)) start(*e);
  }
  /// What is needed at the phase comes first, unless it starts there in the same step.
  void pass(Phase phase) {
    for (const Exchange& e : plan_.exchanges)
      if (e.need.phase == phase && !(e.start.phase == phase && e.need.lag == 0)) need(e);
    starts(phase);
    for (const Exchange& e : plan_.exchanges)
      if (e.need.phase == phase && e.start.phase == phase && e.need.lag == 0) need(e);
  }
  void compute(OpKind op, int tensor, const std::vector<Seconds>& seconds) {
    out_.push_back({.what = Action::compute,
                    .op = op,
                    .index = tensor,
                    .seconds = seconds[static_cast<std::size_t>(tensor)]});
  }
  void start(const Exchange& e) {
    out_.push_back(
        {.what = Action::start, .index = e.id, .seconds = codec_time(e, plan_, profile_).encode_s});
  }
  void need(const Exchange& e) {
    out_.push_back({.what = Action::need,
                    .index = e.id,
                    .lag = e.need.lag,
                    .seconds = codec_time(e, plan_, profile_).decode_s});
  }
  const Plan& plan_;
  const Profile& profile_;
  std::vector<int> firsts_;                                      ///< by exchange
  std::vector<std::vector<const Exchange*>> needed_by_forward_;  ///< by tensor
  std::vector<Action> out_;
};

}  // namespace

CodecTime codec_time(const Exchange& exchange, const Plan& plan, const Profile& profile) {
  if (exchange.form.empty() || exchange.bucket < 0 || profile.codecs.empty()) return {};
  // Most buckets of most plans, and a text less to make.
  static const Spec none{.name = "none"};
  if (exchange.form.size() == 1 && exchange.form[0] == none && !profile.codecs.contains("none"))
    return {};
  const auto found = profile.codecs.find(to_string(std::span<const Spec>(exchange.form)));
  if (found == profile.codecs.end()) return {};
  double dense = 0;
  for (const Slice& slice : plan.grouping[static_cast<std::size_t>(exchange.bucket)].slices)
    dense += static_cast<double>(
        (slice.end - slice.begin) *
        dtype_bytes(plan.tensors[static_cast<std::size_t>(slice.tensor)].dtype));
  const auto seconds = [&](double rate) { return rate > 0 ? dense / rate : 0; };
  const double payloads =
      exchange.pattern == Pattern::all_reduce && algorithm_of(exchange) == "gather"
          ? static_cast<double>(plan.groups[static_cast<std::size_t>(exchange.group)].ranks.size())
          : 1;
  return {.encode_s = seconds(found->second.encode_bytes_per_s),
          .decode_s = payloads * seconds(found->second.decode_bytes_per_s)};
}

std::vector<Action> program_of(const Plan& plan, const Profile& profile) {
  check_tensors(plan, profile);
  return Writer(plan, profile).step();
}

}  // namespace thinwire
