// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/mesh.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <asio/post.hpp>

#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"

namespace thinwire::tcp {
namespace {

constexpr std::size_t kRemembered = 64;  // signatures of finished collectives, for peers that lag

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
  const std::string agreed =
      fmt::format("algorithm {}, chunk {}, eager {}", static_cast<int>(options.all_reduce),
                  options.chunk, options.eager);
  auto sockets = connect_all(mesh->io_, *mesh->membership_, agreed, ports);
  for (auto& socket : sockets)
    mesh->peers_.push_back(socket ? std::make_unique<Peer>(std::move(*socket)) : nullptr);
  mesh->io_.restart();
  mesh->subscription_ = mesh->membership_->on_fault([mesh = mesh.get()](const Fault& fault) {
    asio::post(mesh->io_, [mesh, fault] { mesh->end_all(fault); });
  });
  mesh->thread_ = std::thread([mesh = mesh.get()] {
    pthread_setname_np(pthread_self(), "thinwire-tcp");
    for (std::size_t r = 0; r < mesh->peers_.size(); ++r)
      if (mesh->peers_[r]) mesh->arm_read(static_cast<Rank>(r));
    mesh->io_.run();
  });
  return mesh;
}

// The progress thread never blocks, so joining it is no wait; unfinished calls end with an error.
Mesh::~Mesh() {
  subscription_.reset();
  if (thread_.joinable()) {
    asio::post(io_, [this] {
      end_all({-1, "the communicator was dropped while this call was under way"});
      io_.stop();
    });
    thread_.join();
  }
  for (auto& peer : peers_) {
    if (!peer) continue;
    asio::error_code ignored;
    peer->socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    peer->socket.close(ignored);
  }
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
  std::erase_if(early_,
                [&](const auto& early) { return early->complete && early->frame.group == id; });
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
  ++state.counters.calls;
  call.pending->restart(after(membership_->timeout_s()));
  call.pending->call = &call;
  Handle handle(call.pending);
  active_.push_back(&call);
  post_signatures(call);
  if (call.eager)
    for (Rank r = 0; r < call.ranks(); ++r)
      if (r != call.rank()) emit_to(call, r);
  replay_early(call);
  for (Rank r = 0; r < call.ranks(); ++r) {
    const Rank world = call.group->world[static_cast<std::size_t>(r)];
    if (r == call.rank()) continue;
    if (peer(world).closed && call.peers[static_cast<std::size_t>(r)].missing > 0)
      membership_->fail(
          {world,
           fmt::format("rank {} has closed its data connection; it has left or died", world)});
    send_now(world);
  }
  try_complete(call);
  return handle;
}

/// Peers that get no short piece of this call at once must hear of it all the same.
void Mesh::post_signatures(Call& call) {
  for (Rank r = 0; r < call.ranks(); ++r) {
    const bool piece_goes_at_once = call.eager && !call.peers[static_cast<std::size_t>(r)].emitted;
    if (r == call.rank() || piece_goes_at_once) continue;
    Segment segment;
    segment.frame.kind = FrameKind::posted;
    segment.frame.sequence = call.sequence;
    segment.frame.call = signature_for(call, r);
    segment.frame.group = call.group->id;
    enqueue(call.group->world[static_cast<std::size_t>(r)], segment, nullptr, call.order,
            group(call.group->id));
  }
}

void Mesh::emit_to(Call& call, Rank r) {
  if (call.peers[static_cast<std::size_t>(r)].emitted) return;
  pieces_.clear();
  emit(call, r, pieces_);
  GroupState* state = group(call.group->id);
  for (Segment& segment : pieces_) {
    segment.frame.group = call.group->id;
    enqueue(call.group->world[static_cast<std::size_t>(r)], segment, &call, call.order, state);
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
  if (call.plan == Plan::pairs)
    ours.count = call.out_bytes[static_cast<std::size_t>(r)] / call.element();
  const bool first = world(call.rank()) < world(r);
  membership_->fail({-1, first ? mismatch(world(call.rank()), ours, world(r), theirs)
                               : mismatch(world(r), theirs, world(call.rank()), ours)});
}

/// What came before this rank started the call. The call is not yet known to the progress thread as
/// one that can make progress, so the caller may do this work; it is short by construction.
void Mesh::replay_early(Call& call) {
  for (std::size_t i = 0; i < early_.size();) {
    Early& early = *early_[i];
    if (early.frame.group != call.group->id || early.frame.sequence != call.sequence ||
        early.frame.call.kind == CallKind::send || !early.complete) {
      ++i;
      continue;
    }
    const Rank r = group_rank(*call.group, early.from);
    take_posted(call, r, early.frame.call);
    if (early.frame.kind == FrameKind::data && call.peers[static_cast<std::size_t>(r)].posted) {
      std::byte* place = early.frame.length <= call.peers[static_cast<std::size_t>(r)].missing
                             ? destination(call, r, early.frame)
                             : nullptr;
      if (!place) {
        disagree(call, r, early.frame.call);
      } else {
        std::copy(early.bytes.begin(), early.bytes.end(), place);
        call.peers[static_cast<std::size_t>(r)].missing -= early.frame.length;
        call.missing -= early.frame.length;
        std::vector<std::pair<Rank, Segment>> results;
        arrived(call, early.frame, results);
        for (auto& [to, segment] : results) {
          ++call.unsent;
          segment.frame.group = call.group->id;
          enqueue(call.group->world[static_cast<std::size_t>(to)], segment, &call, call.order,
                  group(call.group->id));
        }
      }
    }
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
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
  const auto pending = call.pending;
  release(call);
  pending->complete();
}

void Mesh::release(Call& call) {
  std::erase(active_, &call);
  call.active = false;
  call.pending->call = nullptr;
}

std::string Mesh::missing_ranks(const Call& call) const {
  std::vector<std::string> names;
  const auto add = [&](Rank world) {
    std::string text = fmt::format("rank {}", world);
    const Seconds silent = membership_->silent_s(world);
    if (membership_->has_left(world)) {
      text += " (has left)";
    } else if (silent >= kFrozenAfter) {
      text += fmt::format(" (frozen: no sign of life for {:.1f} s", silent);
      const std::string last = membership_->last_started(world);
      text += last.empty() ? ")" : fmt::format("; it last started {})", last);
    } else {
      const std::string last = membership_->last_started(world);
      text += last.empty() ? " (alive, has started nothing)"
                           : fmt::format(" (alive, last started {})", last);
    }
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
  return names.empty() ? "any rank" : join(names, ", ");
}

std::exception_ptr Mesh::expired(CallPending& pending, Seconds waited_s) {
  Fault fault{-1, {}};
  {
    std::lock_guard lock(mutex_);
    if (!pending.call)
      return error_of({-1, "the result came at the last moment"},
                      thinwire::describe(pending.signature));
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
      peer->call = nullptr;
      peer->place = nullptr;
      peer->closed = true;
    }
    while (!active_.empty()) {
      pendings.push_back(active_.back()->pending);
      release(*active_.back());
    }
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
  closed.queue.clear();
  bool waits = false;
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
  if (waits) membership_->fail({world, fmt::format("rank {}: its data connection {}", world, why)});
}

}  // namespace thinwire::tcp
