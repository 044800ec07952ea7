// SPDX-License-Identifier: Apache-2.0
// How calls end without a result: a deadline, a closed connection, a fault that another rank has
// reported.
#include <fmt/format.h>

#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire::tcp {
namespace {

// A closed data connection says that a rank is gone, not why: a survivor that has met the fault
// first closes too. The control connections know who is at fault and get this long to say so.
constexpr Seconds kGrace = 0.5;

// When a rank has died, what it sent before may still be on its way; calls that need no more get
// this long to end well, so that the error names the first call that really lacks something.
constexpr Seconds kLastBytes = 0.25;

// With this many seconds without a sign of life a rank is called frozen, not late.
constexpr Seconds kFrozenAfter = 1.0;

}  // namespace

std::exception_ptr CallPending::expired(Seconds waited_s) {
  if (const auto mesh = mesh_.lock()) return mesh->expired(*this, waited_s);
  return error_of({-1, "the communicator was dropped"}, thinwire::describe(signature));
}

std::string Mesh::missing_ranks(const Call& call) const {
  std::vector<std::string> names;
  const auto add = [&](Rank world) {
    std::string text = fmt::format("rank {} (missing): ", world);
    const Seconds silent = membership_->silent_s(world);
    const std::string last = membership_->last_started(world);
    if (membership_->has_left(world))
      text += "has left";
    else if (silent >= kFrozenAfter)
      text += fmt::format("frozen, last sign of life {:.1f} s ago", silent);
    else
      text += fmt::format("alive, last sign of life {:.1f} s ago", silent);
    text += last.empty() ? ", has started nothing" : fmt::format(", last started {}", last);
    names.push_back(text);
  };
  if (call.plan == Plan::message) {
    if (call.partner >= 0) add(call.group->world[static_cast<std::size_t>(call.partner)]);
  } else {
    for (Rank r = 0; r < call.ranks(); ++r) {
      const CallPeer& state = call.peers[static_cast<std::size_t>(r)];
      if (r != call.rank() && (state.missing > 0 || !state.emitted))
        add(call.group->world[static_cast<std::size_t>(r)]);
    }
  }
  return names.empty() ? "any rank" : join(names, "; ");
}

std::exception_ptr Mesh::expired(CallPending& pending, Seconds waited_s) {
  Fault fault{-1, {}};
  {
    std::lock_guard lock(mutex_);
    if (!pending.call)  // over meanwhile: with the group's fault, or with a result, which wins
      return error_of(fault_.value_or(Fault{-1, "the result came at the last moment"}),
                      thinwire::describe(pending.signature.kind, pending.signature.id));
    const Call& call = *pending.call;
    const std::string name = pending.name.empty() ? "" : fmt::format("'{}': ", pending.name);
    fault.text =
        fmt::format("{}rank {} (local) waited {:.1f} s for {} in {}", name, membership_->rank(),
                    waited_s, missing_ranks(call), thinwire::describe(call.signature));
    for (Rank r = 0; call.plan != Plan::message && r < call.ranks() && fault.rank < 0; ++r)
      if (r != call.rank() && call.peers[static_cast<std::size_t>(r)].missing > 0)
        fault.rank = call.group->world[static_cast<std::size_t>(r)];
  }
  const Fault in_force = membership_->fail(fault);
  std::unique_lock lock(mutex_);
  // The caller may free its buffers after the error, so the progress thread must have let go of
  // them.
  stopped_changed_.wait_for(lock, std::chrono::seconds(5), [&] { return stopped_; });
  return error_of(in_force, thinwire::describe(pending.signature.kind, pending.signature.id));
}

void Mesh::end_all(const Fault& fault) {
  std::vector<std::shared_ptr<CallPending>> pendings;
  {
    std::lock_guard lock(mutex_);
    if (!fault_) fault_ = fault;
    for (auto& peer : peers_) {
      if (!peer) continue;
      peer->queue.clear();
      if (!peer->closed) reactor_.remove(peer->fd);
      peer->call = nullptr;
      peer->place = nullptr;
      peer->closed = true;
    }
    while (!active_.empty()) {
      pendings.push_back(active_.back()->pending);
      release(*active_.back());
    }
    for (auto& peer : peers_)
      if (peer) peer->early.reset();
    early_.clear();
    stopped_ = true;
  }
  stopped_changed_.notify_all();
  for (const auto& pending : pendings)
    pending->fail(
        error_of(fault, thinwire::describe(pending->signature.kind, pending->signature.id)));
}

/// The connection is gone. That is no fault as long as nobody waits for anything from this rank.
void Mesh::close_peer(Rank world, const std::string& why) {
  Peer& closed = peer(world);
  closed.closed = true;
  reactor_.remove(closed.fd);
  bool waits = closed.queue.holds_calls();
  closed.queue.clear();
  for (Call* call : active_) {
    const Rank r = group_rank(*call->group, world);
    if (r < 0) continue;
    if (call->plan == Plan::message) {
      waits |= call->partner == r;
    } else {
      waits |= call->peers[static_cast<std::size_t>(r)].missing > 0 ||
               !call->peers[static_cast<std::size_t>(r)].emitted;
    }
  }
  if (waits) suspect(world, why);
}

void Mesh::suspect(Rank world, const std::string& why) {
  if (suspect_) return;
  suspect_ = Suspect{
      {world, fmt::format("rank {}: its data connection {}; it has left or died", world, why)},
      after(kGrace)};
  reactor_.wake();  // the progress thread may be asleep without a limit
}

bool Mesh::await_last_bytes(const Fault& fault) {
  std::lock_guard lock(mutex_);
  if (fault.rank < 0 || fault.config || active_.empty()) return false;
  if (!fault_) fault_ = fault;  // nothing new is started
  dying_ = Suspect{fault, after(kLastBytes)};
  return true;
}

int Mesh::report_suspect() {
  std::optional<Fault> due;
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    std::optional<Suspect>& next = fault_ ? dying_ : suspect_;
    if (!next) return -1;
    over = fault_.has_value();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next->due - Clock::now());
    if (left.count() > 0 && !(over && active_.empty())) return static_cast<int>(left.count());
    due = next->fault;
    next.reset();
  }
  if (over) {
    end_all(*due);
  } else {
    membership_->fail(*due);
  }
  return -1;
}

}  // namespace thinwire::tcp
