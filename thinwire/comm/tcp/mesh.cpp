// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/mesh.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/comm/tcp/linger.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"

namespace thinwire::tcp {
namespace {

constexpr std::size_t kRemembered = 64;  // signatures of finished collectives, for peers that lag

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

Mesh::Mesh(std::shared_ptr<Membership> membership, const Options& options)
    : membership_(std::move(membership)),
      options_(options),
      run_(hash_bytes(membership_->run_id().data(),
                      static_cast<std::int64_t>(membership_->run_id().size()))) {}

std::shared_ptr<Mesh> Mesh::make(std::shared_ptr<Membership> membership, const Options& options,
                                 std::pair<int, int> ports) {
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(membership), options));
  const std::string agreed = fmt::format(
      "algorithm {}, chunk {}, eager {}, congestion {}", static_cast<int>(options.all_reduce),
      options.chunk, options.eager, options.congestion.empty() ? "chosen" : options.congestion);
  for (const int fd : connect_all(*mesh->membership_, agreed, ports))
    mesh->peers_.push_back(fd >= 0 ? std::make_unique<Peer>(fd) : nullptr);
  for (auto& peer : mesh->peers_)
    if (peer && options.congestion.empty())
      choose_congestion(peer->fd);
    else if (peer)
      set_congestion(peer->fd, options.congestion);
  for (std::size_t r = 0; r < mesh->peers_.size(); ++r)
    if (mesh->peers_[r]) mesh->reactor_.add(mesh->peers_[r]->fd, static_cast<std::uint32_t>(r));
  mesh->make_room();
  mesh->subscription_ = mesh->membership_->on_fault([mesh = mesh.get()](const Fault& fault) {
    {
      std::lock_guard lock(mesh->inbox_mutex_);
      mesh->inbox_ = fault;
    }
    mesh->reactor_.wake();
  });
  if (mesh->peers_.size() > 1)
    mesh->thread_ = std::thread([mesh = mesh.get()] {
      pthread_setname_np(pthread_self(), "thinwire-tcp");
      mesh->run();
    });
  return mesh;
}

/// Enough that ranks which are a few short calls apart never allocate.
void Mesh::make_room() {
  constexpr std::size_t kPlaces = 64;
  active_.reserve(kPlaces);
  early_.reserve(kPlaces);
  spare_early_.reserve(kPlaces);
  pieces_.reserve(kPlaces);
  results_.reserve(kPlaces);
  due_.reserve(peers_.size());
  replayed_.reserve(kPlaces);
  for (auto& peer : peers_) {
    if (!peer) continue;
    peer->queue.reserve(kPlaces);
    for (int i = 0; i < 4; ++i) {
      auto early = std::make_unique<Early>();
      early->bytes.resize(static_cast<std::size_t>(std::min<Bytes>(options_.eager, 64 << 10)));
      spare_early_.push_back(std::move(early));
    }
  }
}

// The progress thread never blocks, so joining it is no wait; unfinished calls end with an error.
Mesh::~Mesh() {
  subscription_.reset();
  {
    std::lock_guard lock(inbox_mutex_);
    ending_ = true;
  }
  reactor_.wake();
  if (thread_.joinable()) thread_.join();
  const bool in_order = !fault_ && !membership_->fault();
  end_all({-1, "the communicator was dropped while this call was under way"});
  for (auto& peer : peers_) {
    if (!peer) continue;
    if (in_order)
      close_gently(peer->fd);
    else
      ::close(peer->fd);
  }
}

std::string Mesh::congestion() const {
  std::string all;
  for (const auto& peer : peers_) {
    const std::string name = peer ? congestion_of(peer->fd) : "";
    if (name.empty() || all.find(name) != std::string::npos) continue;
    all += (all.empty() ? "" : ", ") + name;
  }
  return all;
}

void Mesh::add_group(std::shared_ptr<const GroupInfo> info) {
  std::lock_guard lock(mutex_);
  GroupState state;
  state.info = info;
  state.last.resize(kRemembered);
  groups_.emplace(info->id, std::move(state));
}

void Mesh::drop_group(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  groups_.erase(id);
  for (std::size_t i = early_.size(); i-- > 0;)
    if (early_[i]->frame.group == id) drop_early(i);
}

std::int64_t Mesh::next_split(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  return groups_.at(id).splits++;
}

CommCounters Mesh::counters(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  return groups_.at(id).counters;
}

GroupState* Mesh::group(std::uint64_t id) {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : &it->second;
}

Rank Mesh::group_rank(const GroupInfo& info, Rank world) const {
  const auto it = std::find(info.world.begin(), info.world.end(), world);
  return it == info.world.end() ? -1 : static_cast<Rank>(it - info.world.begin());
}

Call& Mesh::fresh_call(const std::shared_ptr<const GroupInfo>& group) {
  std::lock_guard lock(mutex_);
  Call* call = nullptr;
  for (auto& candidate : calls_) {
    if (candidate->active || candidate->pending.use_count() > 1) continue;
    call = candidate.get();
    break;
  }
  if (!call) {
    calls_.push_back(std::make_unique<Call>());
    call = calls_.back().get();
    call->pending = std::make_shared<CallPending>(weak_from_this());
  }
  call->active = true;
  call->group = group;
  call->partner = -1;
  call->bound = false;
  call->working = false;
  return *call;
}

void Mesh::refuse_if_over(const Signature& signature) {
  if (!fault_) fault_ = membership_->fault();
  if (fault_)
    std::rethrow_exception(error_of(*fault_, thinwire::describe(signature.kind, signature.id)));
}

Handle Mesh::start(Call& call, const std::string& name) {
  try {
    prepare(call, options_);
  } catch (...) {
    std::lock_guard lock(mutex_);
    call.active = false;
    throw;
  }
  call.pending->signature = call.signature;
  call.pending->name = name;
  membership_->started(call.signature.kind, call.signature.id);
  std::unique_lock lock(mutex_);
  return publish(call, lock);
}

Handle Mesh::publish(Call& call, std::unique_lock<std::mutex>&) {
  try {
    refuse_if_over(call.signature);
  } catch (...) {
    call.active = false;
    throw;
  }
  GroupState& state = *group(call.group->id);
  call.sequence = state.next++;
  call.order = next_order_++;
  state.last[static_cast<std::size_t>(call.sequence) % kRemembered] = call.signature;
  count_call(&state);
  call.pending->restart(after(membership_->timeout_s()));
  call.pending->call = &call;
  Handle handle(call.pending);
  active_.push_back(&call);
  introduce(call);
  replay_early(call);
  for (Rank r = 0; r < call.ranks(); ++r) {
    if (r == call.rank()) continue;
    const Rank world = call.group->world[static_cast<std::size_t>(r)];
    const CallPeer& state = call.peers[static_cast<std::size_t>(r)];
    if (peer(world).closed && (state.missing > 0 || !state.emitted)) suspect(world, "was closed");
    send_now(world);
  }
  try_complete(call);
  return handle;
}

void Mesh::disagree_on_group(Rank world, const Frame& frame) {
  membership_->fail({world, fmt::format("rank {} sent {} to a group that it does not belong to",
                                        world, thinwire::describe(frame.call))});
}

/// Short pieces go to each peer at once, as long as the peer keeps up; a peer that gets none hears
/// of the call all the same.
void Mesh::introduce(Call& call) {
  for (Rank r = 0; r < call.ranks(); ++r) {
    if (r == call.rank()) continue;
    const Rank world = call.group->world[static_cast<std::size_t>(r)];
    if (call.eager && !call.peers[static_cast<std::size_t>(r)].emitted &&
        has_room(world, call.in.bytes())) {
      emit_to(call, r, true);
      continue;
    }
    Segment segment;
    segment.frame.kind = FrameKind::posted;
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, r);
    segment.frame.group = call.group->id;
    enqueue(world, segment, nullptr, call.order, group(call.group->id));
  }
}

void Mesh::emit_to(Call& call, Rank r, bool eager) {
  if (call.peers[static_cast<std::size_t>(r)].emitted) return;
  pieces_.clear();
  emit(call, r, pieces_);
  GroupState* state = group(call.group->id);
  const Rank world = call.group->world[static_cast<std::size_t>(r)];
  for (Segment& segment : pieces_) {
    segment.frame.group = call.group->id;
    if (eager) sent_eagerly(world, segment.frame);
    enqueue(world, segment, &call, call.order, state);
  }
}

Call* Mesh::find(std::uint64_t group, std::int64_t sequence) {
  for (Call* call : active_)
    if (call->plan != Plan::message && call->sequence == sequence && call->group->id == group)
      return call;
  return nullptr;
}

void Mesh::take_posted(Call& call, Rank r, const Signature& theirs) {
  CallPeer& state = call.peers[static_cast<std::size_t>(r)];
  if (state.posted) return;
  if (!fits(call, r, theirs)) return disagree(call, r, theirs);
  state.posted = true;
  emit_to(call, r);
}

void Mesh::disagree(const Call& call, Rank r, const Signature& theirs) {
  const auto world = [&](Rank g) { return call.group->world[static_cast<std::size_t>(g)]; };
  Signature ours = call.signature;
  if (call.plan == Plan::pairs) {
    ours.count = theirs.count;
    if (ours == theirs) {
      const auto expects = call.out_bytes[static_cast<std::size_t>(r)] / call.element();
      membership_->fail({-1, uneven(ours, world(r), theirs.count, world(call.rank()), expects)});
      return;
    }
  }
  const bool first = world(call.rank()) < world(r);
  membership_->fail({-1, first ? mismatch(world(call.rank()), ours, world(r), theirs)
                               : mismatch(world(r), theirs, world(call.rank()), ours)});
}

/// What came before this rank started the call. The progress thread does not know the call yet, or
/// is the one that does this, so no other thread is at work on its memory; the pieces are short.
void Mesh::replay_early(Call& call) {
  for (std::size_t i = 0; i < early_.size();) {
    Early& early = *early_[i];
    const bool collective =
        early.frame.kind == FrameKind::posted || early.frame.kind == FrameKind::data;
    if (!collective || early.frame.group != call.group->id ||
        early.frame.sequence != call.sequence) {
      ++i;
      continue;
    }
    const Rank r = group_rank(*call.group, early.from);
    if (r >= 0) take_posted(call, r, early.frame.call);
    if (r >= 0 && early.frame.kind == FrameKind::data &&
        call.peers[static_cast<std::size_t>(r)].posted)
      replay(call, r, early);
    drop_early(i);
  }
}

void Mesh::replay(Call& call, Rank r, const Early& early) {
  CallPeer& state = call.peers[static_cast<std::size_t>(r)];
  std::byte* place =
      early.frame.length <= state.missing ? destination(call, r, early.frame) : nullptr;
  if (!place) return disagree(call, r, early.frame.call);
  std::copy_n(early.bytes.begin(), early.frame.length, place);
  state.missing -= early.frame.length;
  call.missing -= early.frame.length;
  replayed_.clear();
  arrived(call, early.frame, replayed_);
  for (auto& [to, segment] : replayed_) {
    ++call.unsent;
    segment.frame.group = call.group->id;
    enqueue(call.group->world[static_cast<std::size_t>(to)], segment, &call, call.order,
            group(call.group->id));
  }
}

void Mesh::try_complete(Call& call) {
  if (!call.active || call.working || call.unsent > 0) return;
  if (call.plan == Plan::message) {
    if (!call.bound || call.missing > 0) return;
  } else {
    if (call.missing > 0 || call.parts_left > 0) return;
    for (const CallPeer& state : call.peers)
      if (!state.emitted) return;
  }
  release(call);
  call.pending->complete();  // no copy of it: it can be reused as soon as its handle is gone
}

void Mesh::release(Call& call) {
  std::erase(active_, &call);
  call.active = false;
  call.pending->call = nullptr;
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
