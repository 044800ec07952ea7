// SPDX-License-Identifier: Apache-2.0
// The progress thread: compares, starts, looks, finishes. It holds the engine's mutex while it
// works, so that a fault that has been told to the caller finds no copy to his memory under way.
#include "thinwire/comm/foreign_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

constexpr std::size_t kSaidBytes = 64;
constexpr auto kLeastNap = std::chrono::microseconds(20);
constexpr auto kMostNap = std::chrono::microseconds(1000);

std::size_t said_bytes(int ranks) {
  return kSaidBytes + static_cast<std::size_t>(ranks) * sizeof(std::int64_t);
}

Signature unpack(const std::byte* from) {
  std::int64_t words[8];
  std::memcpy(words, from, sizeof words);
  return {static_cast<CallKind>(words[0]),
          {static_cast<std::int32_t>(words[1]), words[2], static_cast<std::int32_t>(words[3])},
          static_cast<DType>(words[4] / 256),
          words[5],
          static_cast<Combine>(words[4] % 256),
          static_cast<Rank>(words[6])};
}

}  // namespace

std::vector<std::byte> say(const Signature& signature, std::uint64_t extra,
                           std::span<const std::int64_t> in_counts, int ranks) {
  std::vector<std::byte> out(said_bytes(ranks));
  const std::int64_t words[8]{
      static_cast<std::int64_t>(signature.kind),
      signature.id.exchange,
      signature.id.step,
      signature.id.part,
      static_cast<std::int64_t>(signature.dtype) * 256 + static_cast<std::int64_t>(signature.op),
      signature.count,
      signature.root,
      static_cast<std::int64_t>(extra)};
  static_assert(sizeof words == kSaidBytes);
  std::memcpy(out.data(), words, sizeof words);
  if (!in_counts.empty())
    std::memcpy(out.data() + kSaidBytes, in_counts.data(), in_counts.size_bytes());
  return out;
}

/// The library does not say who is missing; what the ranks have started last does.
std::exception_ptr ForeignPending::expired(Seconds waited_s) {
  const std::string what = describe(signature_.kind, signature_.id);
  std::string missing;
  for (const Rank rank : *world_) {
    const std::string last = rank == group_->rank() ? what : group_->last_started(rank);
    if (last == what) continue;
    missing += fmt::format("{}rank {} (missing{})", missing.empty() ? "" : ", ", rank,
                           last.empty() ? "" : "; it started last: " + last);
  }
  Fault fault{-1, fmt::format("rank {} (local) waited {:.1f} s for {} in {}", group_->rank(),
                              waited_s, missing.empty() ? "the library's end of the call" : missing,
                              describe(signature_))};
  fault = group_->fail(fault);
  // Before the caller has his memory back, the progress thread must know that it is no longer ours
  // to write to.
  if (const auto engine = engine_.lock()) engine->end(fault);
  return error_of(fault, what);
}

Engine::~Engine() {
  token_.reset();
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();  // it never waits for a peer
  bool open = false;
  for (const auto& lane : lanes_) open = open || !lane->waiting.empty() || !lane->running.empty();
  if (open) park();
}
void Engine::submit(Lane& lane, std::unique_ptr<Job> job) {
  {
    std::unique_lock lock(mutex_);
    if (fault_) {
      const Fault fault = *fault_;
      lock.unlock();
      std::rethrow_exception(
          error_of(fault, describe(job->request.signature.kind, job->request.signature.id)));
    }
    const CallKind kind = job->request.signature.kind;
    if (kind == CallKind::send || kind == CallKind::recv)
      lane.running.push_back(std::move(job));
    else
      lane.waiting.push_back(std::move(job));
    woken_ = true;
  }
  changed_.notify_all();
}

void Engine::run() {
  auto nap = kLeastNap;
  std::unique_lock lock(mutex_);
  while (!over_) {
    bool progress = false, open = false;
    for (const auto& lane : lanes_) {
      try {
        progress = (!fault_ && advance(*lane)) || progress;
      } catch (const std::exception& error) {
        wrong_ = lane->ops->name() + ": " + error.what();
      }
      open = open || !lane->waiting.empty() || !lane->running.empty();
    }
    if (!wrong_.empty()) {
      const Fault fault{-1, std::exchange(wrong_, "")};
      lock.unlock();
      end(group_->fail(fault));
      lock.lock();
      continue;
    }
    nap = progress || woken_ ? kLeastNap : std::min(nap * 2, kMostNap);
    woken_ = false;
    if (open && !fault_)
      changed_.wait_for(lock, nap);
    else
      changed_.wait(lock, [this] { return over_ || woken_; });
  }
}

bool Engine::advance(Lane& lane) {
  bool progress = advance_check(lane);
  for (auto& job : lane.running) {
    if (!job->call) job->call = std::make_unique<StagedCall>(*lane.ops, job->request);
    if (!job->call->ready()) continue;
    job->call->finish();
    job->pending->complete();
    job.reset();
    progress = true;
  }
  std::erase(lane.running, nullptr);
  return progress;
}

bool Engine::advance_check(Lane& lane) {
  if (lane.waiting.empty()) return false;
  Job& job = *lane.waiting.front();
  const auto n = static_cast<std::int64_t>(lane.world.size());
  const auto bytes = static_cast<std::int64_t>(job.mine.size());
  if (!job.check) {
    job.all.resize(job.mine.size() * lane.world.size());
    job.check = lane.ops->start({{CallKind::all_gather, job.request.signature.id, DType::u8, bytes},
                                 {job.mine.data(), bytes, DType::u8},
                                 {job.all.data(), n * bytes, DType::u8},
                                 {},
                                 {}});
    return true;
  }
  if (!job.check->ready()) return false;
  wrong_ = compare(lane, job);
  if (!wrong_.empty()) return false;
  auto ready = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  if (ready->request.signature.kind == CallKind::barrier) {
    ready->pending->complete();
    return true;
  }
  lane.running.push_back(std::move(ready));
  return true;
}

std::string Engine::compare(const Lane& lane, const Job& job) const {
  const std::size_t ranks = lane.world.size(), each = said_bytes(static_cast<int>(ranks));
  const auto said = [&](std::size_t r) { return job.all.data() + r * each; };
  for (std::size_t r = 1; r < ranks; ++r)  // from rank 0's side, so that all ranks say the same
    if (std::memcmp(said(0), said(r), kSaidBytes) != 0) {
      const Signature first = unpack(said(0)), other = unpack(said(r));
      if (first == other)  // only the name is another
        return fmt::format("the ranks disagree: rank {} and rank {} are at barriers of other names",
                           lane.world[0], lane.world[r]);
      return mismatch(lane.world[0], first, lane.world[r], other);
    }
  const Signature& s = job.request.signature;
  if (s.kind != CallKind::all_to_all) return {};
  const auto own = static_cast<std::size_t>(lane.ops->rank());
  for (std::size_t r = 0; r < ranks; ++r) {
    std::int64_t sends = 0;
    std::memcpy(&sends, said(r) + kSaidBytes + own * sizeof sends, sizeof sends);
    const std::int64_t expects = job.request.out_counts[r];
    if (sends != expects) return uneven(s, lane.world[r], sends, lane.world[own], expects);
  }
  return {};
}

void Engine::end(const Fault& fault) {
  std::lock_guard lock(mutex_);
  if (fault_) return;
  fault_ = fault;
  const auto fail = [&](const Job& job) {
    job.pending->fail(
        error_of(fault, describe(job.request.signature.kind, job.request.signature.id)));
  };
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->waiting) fail(*job);
    for (const auto& job : lane->running) fail(*job);
  }
  woken_ = true;
  changed_.notify_all();
}

/// The library still uses this memory, and its own destructor would wait: both are left alone for
/// good.
void Engine::park() {
  for (const auto& lane : lanes_) lane->ops->park();
  static auto* parked = new std::vector<std::shared_ptr<Lane>>;
  static std::mutex parked_mutex;
  std::lock_guard lock(parked_mutex);
  parked->insert(parked->end(), lanes_.begin(), lanes_.end());
}

}  // namespace thinwire
