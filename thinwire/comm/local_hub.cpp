// SPDX-License-Identifier: Apache-2.0
// Locks: a hub's mutex may be held while a Pending's is taken, never the reverse, and never while a
// fault is reported, because the report comes back through end().
#include "thinwire/comm/local_hub.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"

namespace thinwire {
std::exception_ptr LocalPending::expired(Seconds waited_s) {
  if (const auto hub = hub_.lock())
    return hub->expired(rank_, signature_, sequence_, *group_, waited_s);
  return error_of(group_->fail({-1, "the communicator was dropped"}), describe(signature_));
}

LocalHub::LocalHub(std::vector<Rank> world, Seconds timeout_s)
    : world_(std::move(world)), timeout_s_(timeout_s), next_(world_.size()), gone_(world_.size()) {}

void LocalHub::claim(Rank at_fault, const std::string& wrong) {
  if (!over_ && !wrong.empty()) over_ = Fault{at_fault, wrong};
}

// The caller's own membership hears of it first, so that what it says and what is thrown agree.
void LocalHub::refuse(const Fault& fault, const Signature& signature, Membership& group) {
  std::rethrow_exception(error_of(group.fail(fault), describe(signature.kind, signature.id)));
}

LocalCall* LocalHub::find(std::int64_t sequence) {
  for (const auto& call : calls_)
    if (call->sequence == sequence) return call.get();
  return nullptr;
}

LocalCall& LocalHub::find_or_start(std::int64_t sequence) {
  if (LocalCall* call = find(sequence)) return *call;
  LocalCall* call = find(-1);
  if (!call) {
    call = calls_.emplace_back(std::make_unique<LocalCall>()).get();
    call->parts.resize(world_.size());
    call->sources.resize(world_.size());
  }
  call->sequence = sequence;
  return *call;
}

void LocalHub::release(LocalCall& call) {
  for (LocalPart& part : call.parts) {
    part.here = false;
    part.pending.reset();
  }
  call.arrived = 0;
  call.running = false;
  call.sequence = -1;
}

std::shared_ptr<LocalPending> LocalHub::take(const std::shared_ptr<LocalHub>& self,
                                             const std::shared_ptr<Membership>& group, Pool& pool,
                                             Rank rank, const Signature& signature,
                                             std::int64_t sequence) const {
  auto it =
      std::find_if(pool.begin(), pool.end(), [](const auto& p) { return p.use_count() == 1; });
  if (it == pool.end())
    it = pool.insert(pool.end(), std::make_shared<LocalPending>(self, group, rank));
  (*it)->begin(signature, sequence, timeout_s_);
  return *it;
}

/// What is wrong with the arrival of `rank` at this call; empty if nothing.
std::string LocalHub::trouble(const LocalCall& call, Rank rank, const LocalPart& part,
                              std::string_view name) const {
  for (Rank other = 0; other < size(); ++other) {
    const LocalPart& known = call.parts[static_cast<std::size_t>(other)];
    if (!known.here && other != rank && gone_[static_cast<std::size_t>(other)])
      return fmt::format("rank {} left the group before {}", world(other),
                         describe(part.signature));
    if (!known.here) continue;
    if (known.signature != part.signature)
      return mismatch(world(other), known.signature, world(rank), part.signature);
    if (call.name != name)
      return fmt::format(
          "the ranks disagree: rank {} started barrier '{}', but rank {} started barrier '{}'",
          world(other), call.name, world(rank), name);
  }
  return {};
}

/// For all_to_all the counts of every pair must agree; known once all are here.
std::string LocalHub::pair_trouble(const LocalCall& call) const {
  if (call.parts[0].signature.kind != CallKind::all_to_all) return {};
  for (std::size_t from = 0; from < call.parts.size(); ++from)
    for (std::size_t to = 0; to < call.parts.size(); ++to) {
      const std::int64_t sends = call.parts[from].in_counts[to],
                         expects = call.parts[to].out_counts[from];
      if (sends != expects)
        return uneven(call.parts[0].signature, world(static_cast<Rank>(from)), sends,
                      world(static_cast<Rank>(to)), expects);
    }
  return {};
}

Handle LocalHub::collective(Rank rank, const std::shared_ptr<LocalHub>& self,
                            const std::shared_ptr<Membership>& group, Pool& pool,
                            const LocalPart& part, std::span<const std::int64_t> out_counts,
                            std::span<const std::int64_t> in_counts, std::string_view name) {
  std::shared_ptr<LocalPending> pending;
  LocalCall* last = nullptr;
  std::string wrong;
  {
    std::unique_lock lock(mutex_);
    if (const auto over = over_) {
      lock.unlock();
      refuse(*over, part.signature, *group);
    }
    const std::int64_t sequence = next_[static_cast<std::size_t>(rank)]++;
    LocalCall& call = find_or_start(sequence);
    pending = take(self, group, pool, rank, part.signature, sequence);
    wrong = trouble(call, rank, part, name);
    LocalPart& mine = call.parts[static_cast<std::size_t>(rank)];
    mine.here = true;
    mine.signature = part.signature;
    mine.in = part.in;
    mine.out = part.out;
    mine.in_counts.assign(in_counts.begin(), in_counts.end());
    mine.out_counts.assign(out_counts.begin(), out_counts.end());
    mine.pending = pending;
    call.name = name;
    if (++call.arrived == size() && wrong.empty()) {
      wrong = pair_trouble(call);
      call.running = wrong.empty();
      if (call.running) last = &call;
    }
    claim(-1, wrong);
  }
  if (!wrong.empty()) group->fail({-1, wrong});  // ends every call that waits here, this one too
  if (!last) return Handle(std::move(pending));
  run(*last);
  std::lock_guard lock(mutex_);
  for (const LocalPart& done : last->parts) done.pending->complete();
  release(*last);
  idle_.notify_all();
  return Handle(std::move(pending));
}

void LocalHub::end(Rank rank, const Fault& fault) {
  std::lock_guard lock(mutex_);
  if (!over_) over_ = fault;
  // A rank hears of it when its own membership knows; one that has dropped its communicator, now.
  const auto hears = [&](Rank r) { return r == rank || gone_[static_cast<std::size_t>(r)] != 0; };
  for (const auto& call : calls_) {
    if (call->sequence < 0 || call->running) continue;
    for (Rank r = 0; r < size(); ++r) {
      LocalPart& part = call->parts[static_cast<std::size_t>(r)];
      if (!part.pending || !hears(r)) continue;
      part.pending->fail(error_of(fault, describe(part.signature.kind, part.signature.id)));
      part.pending.reset();
    }
  }
  const auto drop = [&](std::vector<LocalMessage>& list, CallKind kind) {
    std::erase_if(list, [&](const LocalMessage& message) {
      if (!hears(kind == CallKind::send ? message.from : message.to)) return false;
      if (message.pending) message.pending->fail(error_of(fault, describe(kind, message.id)));
      return true;
    });
  };
  drop(sends_, CallKind::send);
  drop(recvs_, CallKind::recv);
}

std::exception_ptr LocalHub::expired(Rank rank, const Signature& signature, std::int64_t sequence,
                                     Membership& group, Seconds waited_s) {
  std::optional<Fault> fault;
  {
    std::lock_guard lock(mutex_);
    const LocalCall* call = sequence < 0 ? nullptr : find(sequence);
    if (!call || !call->running) {
      claim(-1, fmt::format("rank {} (local) waited {:.1f} s for {} in {}", world(rank), waited_s,
                            missing(rank, signature, sequence, group),
                            call && !call->name.empty() ? fmt::format("barrier '{}'", call->name)
                                                        : describe(signature)));
      fault = over_;
    }
  }
  if (fault) fault = group.fail(*fault);
  // The memory of the call must be the caller's own again when the wait ends: a call that has all
  // its ranks by now finishes, and its result wins.
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] {
    const LocalCall* call = sequence < 0 ? nullptr : find(sequence);
    return !call || !call->running;
  });
  return fault ? error_of(*fault, describe(signature.kind, signature.id)) : nullptr;
}

std::string LocalHub::missing(Rank rank, const Signature& signature, std::int64_t sequence,
                              const Membership& group) const {
  std::string out;
  const auto name = [&](Rank absent) {
    if (absent == rank) return;
    if (!out.empty()) out += ", ";
    out += fmt::format("rank {} (missing", world(absent));
    const std::string last = group.last_started(world(absent));
    out += last.empty() ? ")" : fmt::format("; it started last: {})", last);
  };
  const LocalCall* call = nullptr;
  for (const auto& each : calls_)
    if (sequence >= 0 && each->sequence == sequence) call = each.get();
  if (call) {
    for (Rank r = 0; r < size(); ++r)
      if (!call->parts[static_cast<std::size_t>(r)].here) name(r);
  } else if (signature.root >= 0) {
    name(signature.root);
  } else {
    out = "any rank (missing)";
  }
  return out;
}

void LocalHub::leave(Rank rank, Membership& group) {
  std::string wrong;
  {
    std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = 1;
    if (over_) return;
    for (const auto& call : calls_)
      if (call->sequence >= 0 && call->arrived > 0 &&
          !call->parts[static_cast<std::size_t>(rank)].here)
        for (const LocalPart& part : call->parts)
          if (part.here && wrong.empty())
            wrong = fmt::format("rank {} left the group before {}", world(rank),
                                describe(part.signature));
    for (const LocalMessage& recv : recvs_)
      if (recv.from == rank && wrong.empty())
        wrong = fmt::format("rank {} left the group before its {}", world(rank),
                            describe(CallKind::send, recv.id));
    for (const LocalMessage& send : sends_)
      if (send.to == rank && !send.copied && wrong.empty())
        wrong = fmt::format("rank {} left the group before its {}", world(rank),
                            describe(CallKind::recv, send.id));
    claim(world(rank), wrong);
  }
  if (!wrong.empty()) group.fail({world(rank), wrong});
}

std::shared_ptr<LocalHub> LocalHub::child(std::int64_t nth, int color,
                                          const std::vector<Rank>& members) {
  std::lock_guard lock(mutex_);
  const std::pair key{nth, color};
  Child& child = children_[key];
  if (!child.hub) {
    std::vector<Rank> worlds;
    for (const Rank member : members) worlds.push_back(world(member));
    child.hub = std::make_shared<LocalHub>(std::move(worlds), timeout_s_);
  }
  const auto hub = child.hub;
  if (++child.asked == hub->size()) children_.erase(key);
  return hub;
}

}  // namespace thinwire
