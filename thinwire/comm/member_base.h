// SPDX-License-Identifier: Apache-2.0
// Internal to comm: what memberships over TCP and in one process have in common: the fault in
// force, the rounds of all_gather, and the last call of every rank.
#pragma once
#include <atomic>
#include <map>
#include <mutex>

#include "thinwire/comm/fault_cell.h"
#include "thinwire/comm/membership.h"

namespace thinwire {

/// A call as it travels with heartbeats.
struct StartedCall {
  CallKind kind = CallKind::barrier;
  MessageId id;
};

class MemberBase : public Membership {
 public:
  MemberBase(Rank rank, int size, std::string run_id, Seconds timeout_s);
  ~MemberBase() override;
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& run_id() const override { return run_id_; }
  Seconds timeout_s() const override { return timeout_s_; }
  std::vector<std::string> all_gather(const std::string& topic, std::string_view blob) override;
  void started(CallKind kind, const MessageId& id) override;
  std::string last_started(Rank rank) const override;
  bool has_left(Rank rank) const override;
  Fault fail(const Fault& fault) override;
  std::optional<Fault> fault() const override { return cell_.get(); }
  std::shared_ptr<void> on_fault(std::function<void(const Fault&)> fn) override;

 protected:
  /// Sends this rank's part of a round to all the others.
  virtual void send_part(std::int64_t round, const std::string& topic, std::string_view blob) = 0;
  /// Tells the others of a fault that this rank has found, and calls deliver() soon.
  virtual void spread(const Fault& fault) = 0;

  /// A part of a round, a fault, a call or a farewell of another rank has arrived.
  void take_part(Rank from, std::int64_t round, std::string topic, std::string blob);
  bool take_fault(const Fault& fault);  ///< true if it is the first; the caller then delivers
  void take_started(Rank from, const StartedCall& call);
  void take_farewell(Rank from);
  void deliver() { cell_.deliver(); }
  std::optional<StartedCall> started_by(Rank rank) const;
  /// True while the destructor runs because of an exception.
  bool unwinding() const;

 private:
  class Round;
  std::shared_ptr<Round> round_at(std::int64_t round);  // with mutex_ held
  void fail_rounds();
  std::string describe_missing(const std::vector<Rank>& missing, const std::string& topic,
                               Seconds waited_s) const;

  const Rank rank_;
  const int size_;
  const std::string run_id_;
  const Seconds timeout_s_;
  const int exceptions_;
  FaultCell cell_;
  mutable std::mutex mutex_;
  std::int64_t next_round_ = 0;
  std::map<std::int64_t, std::shared_ptr<Round>> rounds_;
  std::vector<std::optional<StartedCall>> last_;
  std::vector<bool> left_;
};

}  // namespace thinwire
