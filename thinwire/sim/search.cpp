// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/payload.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/cost.h"
#include "thinwire/sim/program.h"
#include "thinwire/sim/simulate.h"

namespace thinwire {
namespace {

using Form = std::vector<Spec>;

bool is_dense(const Form& form) { return form.size() == 1 && form[0].name == "none"; }

std::vector<std::string> groupings_to_try(const SearchOptions& options, bool thins) {
  if (!options.groupings.empty()) return options.groupings;
  // Of an interval, what is not sent must be kept, and only `free` admits it.
  if (thins) return {"covap"};
  return {"exact",
          "mg_wfbp",
          "wfbp",
          "single",
          "even_bytes{count=4}",
          "size_cap{bytes=1MiB}",
          "size_cap{bytes=4MiB}",
          "size_cap{bytes=25MiB}"};
}

double dense_bytes_of(const std::vector<TensorDesc>& tensors) {
  double out = 0;
  for (const TensorDesc& tensor : tensors) out += static_cast<double>(dense_bytes(tensor));
  return out;
}

/// The time that one exchange costs if nothing hides it.
Seconds alone_s(const Exchange& exchange, const Profile& profile, const Cluster& cluster,
                const Plan& plan) {
  const ExchangeCost cost = cost_of(exchange, cluster, world_size(cluster));
  const CodecTime codec = codec_time(exchange, plan, profile);
  return cost.latency_s + cost.wire_s + codec.encode_s + codec.decode_s;
}

class Search {
 public:
  Search(const Profile& profile, const Cluster& cluster, const SearchOptions& options)
      : profile_(profile), cluster_(cluster), options_(options), ranks_(world_size(cluster)) {
    const auto ready = slowest_ready_times({.profile = profile, .cluster = cluster});
    if (!cluster.speed.empty())
      slowest_ = *std::min_element(cluster.speed.begin(), cluster.speed.end());
    update_s_ = profile.update_s / slowest_;
    compute_s_ = *std::max_element(ready.begin(), ready.end()) + update_s_;
    first_ready_s_ = *std::min_element(ready.begin(), ready.end());
  }

  Choice run() {
    auto forms = options_.forms;
    if (forms.empty()) forms = forms_of(options_.quality, options_.momentum);
    if (std::find(forms.begin(), forms.end(), "none") == forms.end())
      forms.insert(forms.begin(), "none");
    for (const std::string& text : forms) consider(text);
    return choose();
  }

 private:
  struct Candidate {
    Considered row;
    Plan plan;
  };

  void refuse(const std::string& form, std::string note) {
    refused_.push_back({.form = form, .note = std::move(note)});
  }

  void consider(const std::string& text) {
    const Form form = parse_chain(text);
    const bool thins = form.size() > 1 && form.back().name == "none";
    const auto& names = memory_names();
    for (std::size_t i = 0; i + 1 < form.size(); ++i)
      if (std::find(names.begin(), names.end(), form[i].name) == names.end())
        throw ConfigError(unknown_name("memory", form[i].name, names));
    payloads().find(form.back().name);
    if (!payload_bytes(form, {}))
      return refuse(text, fmt::format("how many bytes '{}' makes is not known before a run",
                                      form.back().name));
    const std::string canonical = to_string(std::span<const Spec>(form));
    if (!is_dense(form) && !profile_.codecs.contains(canonical))
      return refuse(text, "its speed has not been measured on this machine");
    for (const std::string& grouping : groupings_to_try(options_, thins))
      try_one(parse_spec(grouping), form, canonical);
  }

  void try_one(const Spec& grouping, const Form& form, const std::string& text) {
    GroupInput input{.profile = profile_, .cluster = cluster_};
    const double dense = dense_bytes_of(profile_.params);
    if (!is_dense(form) && dense > 0)
      input.bytes_per_byte =
          static_cast<double>(payload_bytes(form, profile_.params).value_or(0)) / dense;
    Grouped grouped;
    try {
      grouped = make_grouped(grouping, input);
    } catch (const ConfigError& error) {
      // One that needs what has not been measured; a name that nobody knows is the user's.
      if (!options_.groupings.empty()) throw;
      refused_.push_back({.grouping = to_string(grouping), .form = text, .note = error.what()});
      return;
    }
    if (grouped.frozen) return;  // a plan cannot say so
    const Candidate whole{
        .row = {.grouping = to_string(grouping), .form = text},
        .plan = data_parallel_plan(profile_.params, grouped.grouping, ranks_, form, grouped.every)};
    add(whole);
    if (!options_.mixes || is_dense(form) || grouped.every > 1) return;
    Candidate mixed = whole;
    keep_what_pays(mixed);
    constexpr std::size_t kFewBuckets = 64;  // of more, a few at the end are little
    if (mixed.plan.grouping.size() <= kFewBuckets) add(tail_of(mixed));
    add(std::move(mixed));
  }

  /// Measured, unless it is one of those there are: all of its buckets as they are, or none.
  void add(Candidate candidate) {
    measure(candidate);
    const Considered& row = candidate.row;
    if (row.form != "none" && row.left_dense == row.messages) return;
    if (!candidates_.empty() && candidates_.back().plan == candidate.plan) return;
    candidates_.push_back(std::move(candidate));
  }

  /// What is ready last has least to hide behind: only so many of the last buckets in the form, as
  /// long as one more makes the step shorter.
  Candidate tail_of(const Candidate& mixed) const {
    constexpr int kMost = 16;
    Candidate out = mixed;
    for (Exchange& exchange : out.plan.exchanges)
      if (exchange.bucket >= 0) exchange = as_it_is(exchange, out.plan);
    measure(out);
    int tried = 0;
    for (std::size_t i = mixed.plan.exchanges.size(); i-- > 0 && tried < kMost;) {
      const Exchange& exchange = mixed.plan.exchanges[i];
      if (exchange.bucket < 0 || is_dense(exchange.form)) continue;
      if (!shortens(out, i, exchange)) break;
      ++tried;
    }
    return out;
  }
  /// Puts another exchange in place of exchange i if that makes the step shorter.
  bool shortens(Candidate& candidate, std::size_t i, const Exchange& other) const {
    const Considered row = candidate.row;
    const Exchange before = std::exchange(candidate.plan.exchanges[i], other);
    measure(candidate);
    if (candidate.row.step_s < row.step_s && fits(candidate.row)) return true;
    candidate.plan.exchanges[i] = before;
    candidate.row = row;
    return false;
  }

  /// Each bucket by itself in the form or as it is, whichever takes less time.
  void keep_what_pays(Candidate& candidate) const {
    for (Exchange& exchange : candidate.plan.exchanges) {
      if (exchange.bucket < 0) continue;
      const Exchange plain = as_it_is(exchange, candidate.plan);
      if (alone_s(plain, profile_, cluster_, candidate.plan) <=
          alone_s(exchange, profile_, cluster_, candidate.plan))
        exchange = plain;
    }
  }
  static Exchange as_it_is(const Exchange& exchange, const Plan& plan) {
    Exchange out = exchange;
    out.form = {{.name = "none"}};
    out.algorithm.clear();
    const auto tensors =
        tensors_of(plan.grouping[static_cast<std::size_t>(exchange.bucket)], plan.tensors);
    out.payload = payload_bytes(out.form, tensors).value_or(0);
    return out;
  }

  void measure(Candidate& candidate) const {
    candidate.row.messages = candidate.plan.grouping.size();
    candidate.row.left_dense = 0;
    for (const Exchange& exchange : candidate.plan.exchanges)
      if (exchange.bucket >= 0 && is_dense(exchange.form) && candidate.row.form != "none")
        ++candidate.row.left_dense;
    candidate.row.step_s = steady_step_s(candidate.plan, profile_, cluster_);
    Seconds encoding = 0;
    for (const Exchange& exchange : candidate.plan.exchanges)
      encoding +=
          codec_time(exchange, candidate.plan, profile_).encode_s / slowest_ / exchange.start.every;
    candidate.row.exposed_s = std::max(0.0, candidate.row.step_s - compute_s_ - encoding);
    candidate.row.bytes_per_step = thinwire::bytes_per_step(candidate.plan, cluster_);
  }

  /// What the local rule cannot see: a bucket that the computation hides need not be compressed.
  void improve(Candidate& best) const {
    constexpr std::size_t kMost = 64;
    if (!options_.mixes || best.row.form == "none" || best.plan.grouping.size() > kMost) return;
    for (std::size_t i = 0; i < best.plan.exchanges.size(); ++i) {
      const Exchange& exchange = best.plan.exchanges[i];
      if (exchange.bucket < 0 || is_dense(exchange.form) || exchange.start.every > 1) continue;
      shortens(best, i, as_it_is(exchange, best.plan));
    }
  }

  bool fits(const Considered& row) const {
    return options_.max_bytes_per_step == 0 || row.bytes_per_step <= options_.max_bytes_per_step;
  }

  Choice choose() {
    const auto key = [](const Considered& row) {  // the same order on every rank
      return std::tuple(row.step_s, row.form != "none", row.messages, row.form, row.grouping,
                        row.left_dense);
    };
    std::sort(candidates_.begin(), candidates_.end(),
              [&](const Candidate& a, const Candidate& b) { return key(a.row) < key(b.row); });
    const auto best = std::find_if(candidates_.begin(), candidates_.end(),
                                   [&](const Candidate& one) { return fits(one.row); });
    if (best == candidates_.end()) refuse_all();
    const auto dense = std::find_if(candidates_.begin(), candidates_.end(),
                                    [](const Candidate& one) { return one.row.form == "none"; });
    Choice out{.dense = dense->row, .compute_s = compute_s_};
    // Another form changes the training, and many messages the risk: neither for next to nothing.
    constexpr double kSame = 1.001, kWorthwhile = 0.97;
    auto chosen = best;
    if (best->row.form != "none" && fits(dense->row) &&
        best->row.step_s > kWorthwhile * dense->row.step_s)
      chosen = dense;
    const Seconds least = chosen->row.step_s;
    for (auto one = candidates_.begin(); one != candidates_.end(); ++one)
      if (one->row.step_s <= kSame * least && fits(one->row) && simpler(*one, *chosen))
        chosen = one;
    Candidate last = *chosen;
    improve(last);
    out.chosen = last.row;
    for (auto one = candidates_.begin(); one != candidates_.end(); ++one) {
      if (one == chosen) continue;
      if (!fits(one->row))
        one->row.note =
            fmt::format("more than {} a step", format_bytes(options_.max_bytes_per_step));
      out.others.push_back(one->row);
    }
    out.others.insert(out.others.end(), refused_.begin(), refused_.end());
    out.bound_s = bound_of(last.plan);
    out.plan = std::move(last.plan);
    out.verdict = verdict(out);
    return out;
  }
  static bool simpler(const Candidate& a, const Candidate& b) {
    const auto key = [](const Considered& row) {
      return std::tuple(row.form != "none", row.messages, row.messages - row.left_dense);
    };
    return key(a.row) < key(b.row);
  }

  [[noreturn]] void refuse_all() const {
    const auto least = std::min_element(candidates_.begin(), candidates_.end(),
                                        [](const Candidate& a, const Candidate& b) {
                                          return a.row.bytes_per_step < b.row.bytes_per_step;
                                        });
    throw ConfigError(fmt::format(
        "max_bytes_per_step must leave a plan, got {}: the least of those considered is {} ({})",
        options_.max_bytes_per_step, least->row.bytes_per_step, least->row.form));
  }

  Seconds bound_of(const Plan& plan) const {
    Seconds wire = 0, latency = 0;
    for (const Exchange& exchange : plan.exchanges) {
      if (exchange.bucket < 0) continue;
      const ExchangeCost cost = cost_of(exchange, cluster_, ranks_);
      wire += cost.wire_s / exchange.start.every;
      const Seconds mean_s = cost.latency_s / exchange.start.every;
      latency = latency > 0 ? std::min(latency, mean_s) : mean_s;
    }
    return std::max(compute_s_, first_ready_s_ + latency + wire + update_s_);
  }

  std::string verdict(const Choice& choice) const {
    std::string out = first_sentence(choice);
    // More samples a step hide more of the same bytes; said where that comes near.
    for (const int times : {2, 4}) {
      if (choice.chosen.form == "none") break;
      Profile larger = profile_;
      for (auto* list : {&larger.forward_s, &larger.backward_s})  // the update stays as it is
        for (Seconds& seconds : *list) seconds *= times;
      const Choice dense = Search(larger, cluster_, {.forms = {"none"}}).plain();
      const Seconds share = dense.chosen.step_s / times;
      if (share > 1.03 * choice.chosen.step_s) continue;
      out += fmt::format(
          " A local batch {} times as large does as well with whole gradients: {} for the samples "
          "of one step.",
          times, format_seconds(share));
      break;
    }
    return out;
  }
  /// Without the second sentence.
  Choice plain() {
    consider("none");
    Choice out;
    const auto best = std::min_element(
        candidates_.begin(), candidates_.end(),
        [](const Candidate& a, const Candidate& b) { return a.row.step_s < b.row.step_s; });
    out.chosen = best->row;
    return out;
  }

  std::string first_sentence(const Choice& choice) const {
    if (choice.chosen.form != "none")
      return fmt::format(
          "Send {} in {}: a step of {} where whole gradients take {}, {:.2f} times as long, and "
          "computation alone takes {}.",
          choice.chosen.form, count_of(choice.chosen.messages, "message"),
          format_seconds(choice.chosen.step_s), format_seconds(choice.dense.step_s),
          choice.dense.step_s / choice.chosen.step_s, format_seconds(compute_s_));
    const auto other =
        std::find_if(choice.others.begin(), choice.others.end(),
                     [](const Considered& one) { return one.form != "none" && one.step_s > 0; });
    const std::string took =
        fmt::format("a step of {}, {} of it not hidden behind computation",
                    format_seconds(choice.chosen.step_s), format_seconds(choice.chosen.exposed_s));
    if (other == choice.others.end())
      return fmt::format("Send whole gradients in {}: {}. No other form was considered.",
                         count_of(choice.chosen.messages, "message"), took);
    return fmt::format(
        "Do not compress. Whole gradients in {}: {}; {}, the best of the forms, takes {}.",
        count_of(choice.chosen.messages, "message"), took, other->form,
        format_seconds(other->step_s));
  }
  static std::string count_of(std::size_t count, const std::string& word) {
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const SearchOptions& options_;
  int ranks_;
  double slowest_ = 1;  ///< speed of the slowest rank
  Seconds compute_s_ = 0, first_ready_s_ = 0, update_s_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<Considered> refused_;
};

}  // namespace

Seconds steady_step_s(const Plan& plan, const Profile& profile, const Cluster& cluster) {
  constexpr std::int64_t kLongest = 64;
  std::int64_t whole = 1;
  for (const Exchange& exchange : plan.exchanges) {
    whole = std::lcm(whole, std::int64_t{std::max(1, exchange.start.every)});
    if (whole >= kLongest) break;  // what is left of a longer period is little in the mean
  }
  const int period = static_cast<int>(std::min(whole, kLongest));
  const auto steps = step_seconds(simulate(plan, profile, cluster, {.steps = 2 * period}));
  return std::accumulate(steps.begin() + period, steps.end(), 0.0) / period;
}

Bytes bytes_per_step(const Plan& plan, const Cluster& cluster) {
  double sent = 0;
  for (const Exchange& exchange : plan.exchanges) {
    const auto& group = plan.groups[static_cast<std::size_t>(exchange.group)];
    sent +=
        static_cast<double>(cost_of(exchange, cluster, static_cast<int>(group.ranks.size())).sent) /
        exchange.start.every;
  }
  return static_cast<Bytes>(std::llround(sent));
}

Choice search(const Profile& profile, const Cluster& cluster, const SearchOptions& options) {
  validate(profile);
  validate(cluster);
  if (options.max_bytes_per_step < 0)
    throw ConfigError(
        fmt::format("max_bytes_per_step must be at least 0, got {}", options.max_bytes_per_step));
  return Search(profile, cluster, options).run();
}

}  // namespace thinwire
