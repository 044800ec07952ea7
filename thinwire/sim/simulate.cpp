// SPDX-License-Identifier: Apache-2.0
#include "thinwire/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/sim/cost.h"
#include "thinwire/sim/program.h"

namespace thinwire {
namespace {

constexpr Seconds kNever = std::numeric_limits<double>::infinity();

/// Ranks that do the same at the same times.
struct Kind {
  Rank first = 0;  ///< the one that stands in the trace
  double speed = 1;
  // Where it stands in its program.
  std::int64_t step = 0;
  std::size_t next = 0;  ///< the action that comes
  Seconds left_s = 0;    ///< of the one under way, at full speed; 0: none
  Seconds begun_s = 0;   ///< of the one under way
  double pace = 1;       ///< of this step (jitter)
  bool waits = false;    ///< for a value that has not arrived
  bool done = false;
};

/// One firing of one exchange.
struct Flight {
  int exchange = 0;
  std::int64_t step = 0;
  int started = 0;                    ///< kinds that have
  std::vector<Seconds> begun_s;       ///< by kind
  Seconds latency_s = 0, wire_s = 0;  ///< left
  bool travels = false, arrived = false;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Profile& profile, const Cluster& cluster,
             const SimOptions& options)
      : plan_(plan), cluster_(cluster), options_(options), program_(program_of(plan, profile)) {
    make_kinds();
    for (const Exchange& exchange : plan.exchanges)
      costs_.push_back(
          cost_of(exchange, cluster, static_cast<int>(group_of(exchange).ranks.size())));
  }

  Trace run() {
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      begin_step(kinds_[k]);
      go_on(k);
    }
    for (;;) {
      send();
      const Seconds until = next_event();
      if (until == kNever) break;
      pass(until - now_);
      now_ = until;
      finish_transfers();
      for (std::size_t k = 0; k < kinds_.size(); ++k)
        if (kinds_[k].left_s > 0 && kinds_[k].left_s <= slack()) finish_action(k);
    }
    for (const Kind& kind : kinds_)
      if (!kind.done) refuse_stuck(kind);
    return std::move(trace_);
  }

 private:
  const Group& group_of(const Exchange& exchange) const {
    return plan_.groups[static_cast<std::size_t>(exchange.group)];
  }
  /// Below this a remainder is rounding.
  Seconds slack() const { return 1e-12 + 1e-12 * now_; }

  void make_kinds() {
    const int ranks = world_size(cluster_);
    std::map<std::vector<double>, std::size_t> known;
    std::vector<std::size_t> kind_of;  // by rank
    for (Rank rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      std::vector<double> key{cluster_.speed.empty() ? 1.0 : cluster_.speed[r]};
      for (const Group& group : plan_.groups)
        key.push_back(std::binary_search(group.ranks.begin(), group.ranks.end(), rank) ? 1 : 0);
      if (options_.jitter > 0) key.push_back(rank);
      const auto [at, fresh] = known.try_emplace(key, kinds_.size());
      if (fresh) kinds_.push_back({.first = rank, .speed = key[0]});
      kind_of.push_back(at->second);
    }
    members_.resize(plan_.groups.size());
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      for (const Rank rank : plan_.groups[g].ranks)
        members_[g].push_back(kind_of[static_cast<std::size_t>(rank)]);
      std::sort(members_[g].begin(), members_[g].end());
      members_[g].erase(std::unique(members_[g].begin(), members_[g].end()), members_[g].end());
    }
  }
  const std::vector<std::size_t>& members(int exchange) const {
    return members_[static_cast<std::size_t>(
        plan_.exchanges[static_cast<std::size_t>(exchange)].group)];
  }
  bool takes_part(std::size_t kind, int exchange) const {
    const auto& all = members(exchange);
    return std::binary_search(all.begin(), all.end(), kind);
  }

  void begin_step(Kind& kind) {
    kind.next = 0;
    kind.pace = 1;
    if (options_.jitter == 0) return;
    Rng rng({.seed = options_.seed, .exchange = -1, .step = kind.step, .rank = kind.first});
    constexpr double kLeast = 0.05;  // nothing takes no time
    kind.pace = std::max(kLeast, 1 + options_.jitter * rng.normal());
  }

  Flight& flight(int exchange, std::int64_t step) {
    const auto [at, fresh] = flights_.try_emplace({step, exchange});
    if (fresh) {
      const ExchangeCost& cost = costs_[static_cast<std::size_t>(exchange)];
      at->second = {.exchange = exchange,
                    .step = step,
                    .begun_s = std::vector<Seconds>(kinds_.size(), kNever),
                    .latency_s = cost.latency_s,
                    .wire_s = cost.wire_s};
    }
    return at->second;
  }

  /// Does what takes no time, up to an action that does, a wait or the end.
  void go_on(std::size_t k) {
    Kind& kind = kinds_[k];
    kind.waits = false;
    while (!kind.done) {
      if (kind.next == program_.size()) {
        if (++kind.step == options_.steps) {
          kind.done = true;
          return;
        }
        begin_step(kind);
      }
      const Action& action = program_[kind.next];
      if (!happens(k, action)) {
        ++kind.next;
        continue;
      }
      if (action.what == Action::need) {
        const auto found = flights_.find({kind.step - action.lag, action.index});
        if (found == flights_.end() || !found->second.arrived) {
          kind.waits = true;
          return;
        }
      }
      kind.begun_s = now_;
      kind.left_s = action.seconds / kind.speed * (action.what == Action::compute ? kind.pace : 1);
      if (action.what == Action::start) flight(action.index, kind.step).begun_s[k] = now_;
      if (kind.left_s > 0) return;
      end_action(k);
    }
  }

  bool happens(std::size_t k, const Action& action) const {
    if (action.what == Action::compute || action.what == Action::update) return true;
    const Exchange& exchange = plan_.exchanges[static_cast<std::size_t>(action.index)];
    const std::int64_t step = kinds_[k].step - (action.what == Action::need ? action.lag : 0);
    return step >= 0 && fires(exchange.start, step) && takes_part(k, action.index);
  }

  /// The action under way is over: what follows from it, without going on to the next.
  void end_action(std::size_t k) {
    Kind& kind = kinds_[k];
    const Action& action = program_[kind.next++];
    kind.left_s = 0;
    if (action.what == Action::compute)
      record({.kind = action.op, .index = action.index, .begin_s = kind.begun_s}, kind, kind.step);
    if (action.what == Action::update)
      record({.kind = OpKind::update, .index = kWhole, .begin_s = kind.begun_s}, kind, kind.step);
    if (action.what != Action::start) return;
    Flight& one = flight(action.index, kind.step);
    if (++one.started < static_cast<int>(members(action.index).size())) return;
    wait(&one);
  }
  void finish_action(std::size_t k) {
    end_action(k);
    go_on(k);
  }

  void record(Event event, const Kind& kind, std::int64_t step) {
    event.rank = kind.first;
    event.step = step;
    event.end_s = now_;
    trace_.push_back(event);
  }

  bool more_urgent(const Flight& a, const Flight& b) const {
    const int left = plan_.exchanges[static_cast<std::size_t>(a.exchange)].priority;
    const int right = plan_.exchanges[static_cast<std::size_t>(b.exchange)].priority;
    if (left != right) return left > right;
    return std::pair(a.step, a.exchange) < std::pair(b.step, b.exchange);
  }

  /// In its place among those that wait, the most urgent in front.
  void wait(Flight* one) {
    waiting_.insert(
        std::upper_bound(waiting_.begin(), waiting_.end(), one,
                         [&](const Flight* a, const Flight* b) { return more_urgent(*a, *b); }),
        one);
  }
  bool is_more_urgent_waiting(const Flight& than) const {
    return !waiting_.empty() && more_urgent(*waiting_.front(), than);
  }

  /// Puts on the wire what may go: ranks carry one exchange at a time.
  void send() {
    std::vector<bool> busy(kinds_.size());
    for (const Flight* on : travelling_)
      for (const std::size_t k : members(on->exchange)) busy[k] = true;
    for (std::size_t i = 0; i < waiting_.size();) {
      if (std::find(busy.begin(), busy.end(), false) == busy.end()) return;
      Flight* one = waiting_[i];
      const auto& mine = members(one->exchange);
      if (std::any_of(mine.begin(), mine.end(), [&](std::size_t k) { return busy[k]; })) {
        ++i;
        continue;
      }
      one->travels = true;
      travelling_.push_back(one);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      // What takes no time has arrived at once, and others may have started for it.
      if (one->latency_s + one->wire_s <= 0) {
        finish_transfers();
        i = 0;
      } else {
        for (const std::size_t k : mine) busy[k] = true;
      }
    }
  }

  /// How long a transfer goes on undisturbed: to its end, or to the end of a chunk where somebody
  /// more urgent waits.
  Seconds leg(const Flight& one) const {
    if (one.latency_s > 0) return one.latency_s;
    const Exchange& exchange = plan_.exchanges[static_cast<std::size_t>(one.exchange)];
    const bool overtaken =
        exchange.chunk > 0 && exchange.chunk < exchange.payload && is_more_urgent_waiting(one);
    if (!overtaken) return one.wire_s;
    const Seconds whole = costs_[static_cast<std::size_t>(one.exchange)].wire_s;
    const Seconds chunk =
        whole * static_cast<double>(exchange.chunk) / static_cast<double>(exchange.payload);
    const Seconds rest = std::fmod(one.wire_s, chunk);
    return rest > slack() ? rest : std::min(chunk, one.wire_s);
  }

  double rate_of(std::size_t k) const {
    if (!cluster_.shared_core) return 1;
    double share = 0;
    for (const Flight* one : travelling_)
      if (one->latency_s <= 0 && takes_part(k, one->exchange))
        share += costs_[static_cast<std::size_t>(one->exchange)].core_share;
    return std::max(0.0, 1 - share);
  }

  Seconds next_event() const {
    Seconds until = kNever;
    for (const Flight* one : travelling_) until = std::min(until, now_ + leg(*one));
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const double rate = kinds_[k].left_s > 0 ? rate_of(k) : 0;
      if (rate > 0) until = std::min(until, now_ + kinds_[k].left_s / rate);
    }
    return until;
  }

  void pass(Seconds took) {
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (kinds_[k].left_s > 0)
        kinds_[k].left_s = std::max(1e-300, kinds_[k].left_s - took * rate_of(k));
    legs_.clear();
    for (Flight* one : travelling_) legs_.push_back(leg(*one));
    for (std::size_t i = 0; i < travelling_.size(); ++i) {
      Flight& one = *travelling_[i];
      (one.latency_s > 0 ? one.latency_s : one.wire_s) -= took;
      if (took < legs_[i] - slack()) continue;
      if (one.latency_s > 0 && one.latency_s <= slack()) one.latency_s = 0;
      if (one.wire_s <= slack()) one.wire_s = 0;
      one.travels = one.latency_s > 0 || !is_overtaken(one);
    }
  }
  bool is_overtaken(const Flight& one) const {
    return is_more_urgent_waiting(one) &&
           plan_.exchanges[static_cast<std::size_t>(one.exchange)].chunk > 0;
  }

  void finish_transfers() {
    std::vector<Flight*> ended;
    std::erase_if(travelling_, [&](Flight* one) {
      if (one->latency_s <= 0 && one->wire_s <= 0) {
        ended.push_back(one);
        return true;
      }
      if (one->travels) return false;
      wait(one);
      return true;
    });
    for (Flight* one : ended) {
      one->arrived = true;
      for (const std::size_t k : members(one->exchange))
        record({.kind = OpKind::exchange,
                .index = one->exchange,
                .begin_s = one->begun_s[k],
                .bytes = costs_[static_cast<std::size_t>(one->exchange)].sent},
               kinds_[k], one->step);
    }
    if (ended.empty()) return;
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (kinds_[k].waits) go_on(k);
  }

  [[noreturn]] void refuse_stuck(const Kind& kind) const {
    const int exchange = program_[kind.next].index;
    throw ConfigError(
        fmt::format("simulate: exchange {} is needed in step {} before it can have started",
                    exchange, kind.step));
  }

  const Plan& plan_;
  const Cluster& cluster_;
  const SimOptions& options_;
  const std::vector<Action> program_;  ///< of one step of every rank
  std::vector<ExchangeCost> costs_;    ///< by exchange
  std::vector<Kind> kinds_;
  std::vector<std::vector<std::size_t>> members_;  ///< kinds, rising, by group
  std::map<std::pair<std::int64_t, int>, Flight> flights_;
  std::vector<Flight*> waiting_, travelling_;  ///< waiting: the most urgent in front
  std::vector<Seconds> legs_;
  Seconds now_ = 0;
  Trace trace_;
};

}  // namespace

Trace simulate(const Plan& plan, const Profile& profile, const Cluster& cluster,
               const SimOptions& options) {
  validate(profile);
  validate(plan, cluster);
  if (options.steps < 1)
    throw ConfigError(fmt::format("simulate: steps must be at least 1, got {}", options.steps));
  if (!(options.jitter >= 0 && options.jitter <= 1))
    throw ConfigError(fmt::format("simulate: jitter must be in [0, 1], got {}", options.jitter));
  return Simulation(plan, profile, cluster, options).run();
}

std::vector<Seconds> step_seconds(const Trace& trace) {
  std::vector<Seconds> ends;
  for (const Event& event : trace) {
    if (event.kind != OpKind::update) continue;
    const auto step = static_cast<std::size_t>(event.step);
    if (ends.size() <= step) ends.resize(step + 1, 0);
    ends[step] = std::max(ends[step], event.end_s);
  }
  for (std::size_t i = ends.size(); i-- > 1;) ends[i] -= ends[i - 1];
  return ends;
}

}  // namespace thinwire
