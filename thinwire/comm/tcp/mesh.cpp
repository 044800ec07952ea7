// SPDX-License-Identifier: Apache-2.0
// How a mesh comes to be and ends, its groups, and the calls that callers fill.
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

}  // namespace

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
  std::lock_guard lock(mutex_);
  return publish(call);
}

}  // namespace thinwire::tcp
