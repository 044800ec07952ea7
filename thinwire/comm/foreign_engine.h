// SPDX-License-Identifier: Apache-2.0
// Internal to comm: the progress thread of the adapters, and what it keeps.
#pragma once
#include "thinwire/comm/foreign.h"
#include "thinwire/comm/foreign_calls.h"

namespace thinwire {

class Engine;

class ForeignPending final : public Pending {
 public:
  ForeignPending(std::weak_ptr<Engine> engine, std::shared_ptr<Membership> group,
                 std::shared_ptr<const std::vector<Rank>> world, const Signature& signature)
      : engine_(std::move(engine)),
        group_(std::move(group)),
        world_(std::move(world)),
        signature_(signature) {
    restart(after(group_->timeout_s()));
  }
  const Signature& signature() const { return signature_; }

 protected:
  std::exception_ptr expired(Seconds waited_s) override;

 private:
  std::weak_ptr<Engine> engine_;
  std::shared_ptr<Membership> group_;
  std::shared_ptr<const std::vector<Rank>> world_;
  Signature signature_;
};

/// One call of one communicator.
struct Job {
  ForeignRequest request;
  std::shared_ptr<ForeignPending> pending;
  std::vector<std::byte> mine, all;  ///< what the ranks say of the call before it starts
  std::unique_ptr<ForeignCall> check;
  std::unique_ptr<StagedCall> call;
};

/// What the progress thread keeps of one communicator.
struct Lane {
  std::shared_ptr<ForeignOps> ops;
  std::vector<Rank> world;
  std::deque<std::unique_ptr<Job>>
      waiting;  // collectives that have not been compared yet, in order
  std::vector<std::unique_ptr<Job>> running;
};

class Engine {
 public:
  explicit Engine(std::shared_ptr<Membership> group) : group_(std::move(group)) {
    token_ = group_->on_fault([this](const Fault& fault) { end(fault); });
    thread_ = std::thread([this] { run(); });
  }
  ~Engine();
  void add(const std::shared_ptr<Lane>& lane) {
    std::lock_guard lock(mutex_);
    lanes_.push_back(lane);
  }
  void submit(Lane& lane, std::unique_ptr<Job> job);
  const std::shared_ptr<Membership>& group() const { return group_; }
  /// What is pending ends with this error; from here on nobody's memory is written. Any thread.
  void end(const Fault& fault);

 private:
  void run();
  bool advance(Lane& lane);
  bool advance_check(Lane& lane);
  std::string compare(const Lane& lane, const Job& job) const;
  void park();

  std::shared_ptr<Membership> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, woken_ = false;
  std::optional<Fault> fault_;
  std::string wrong_;  // found by the progress thread, to be reported without the lock
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::shared_ptr<void> token_;
  std::thread thread_;
};

/// What a rank says of a call before it starts: 64 bytes and one count a rank.
std::vector<std::byte> say(const Signature& signature, std::uint64_t extra,
                           std::span<const std::int64_t> in_counts, int ranks);

}  // namespace thinwire
