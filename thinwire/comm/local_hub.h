// SPDX-License-Identifier: Apache-2.0
// Internal to comm/local: where the threads of one communicator meet. The k-th collective of every
// rank lands in the same LocalCall; the rank that arrives last does the work, in rank order, and
// completes all. Messages between two ranks wait in two lists until both sides are there.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/signature.h"

namespace thinwire {

class LocalHub;

/// What one rank brings to a collective.
struct LocalPart {
  bool here = false;
  Signature signature;
  Buffer in, out;
  std::vector<std::int64_t> in_counts, out_counts;  ///< all_to_all
  std::shared_ptr<Pending> pending;
};

struct LocalCall {
  std::int64_t sequence = -1;
  int arrived = 0;
  bool running = false;  ///< the last rank is at work on everybody's memory
  std::string name;      ///< barrier
  std::vector<LocalPart> parts;
  std::vector<const void*> sources;  ///< where the sum reads, one a rank
};

/// A send or a receive that waits for the other side.
struct LocalMessage {
  MessageId id;
  Rank from = -1, to = -1;  ///< from -1: any
  Buffer buffer;
  std::vector<std::byte> copy;  ///< a short message waits here, so that its sender need not
  bool copied = false;
  std::shared_ptr<Pending> pending;
};

class LocalPending final : public Pending {
 public:
  LocalPending(std::weak_ptr<LocalHub> hub, std::shared_ptr<Membership> group, Rank rank)
      : hub_(std::move(hub)), group_(std::move(group)), rank_(rank) {}
  void begin(const Signature& signature, std::int64_t sequence, Seconds timeout_s) {
    signature_ = signature;
    sequence_ = sequence;
    restart(after(timeout_s));
  }
  const Signature& signature() const { return signature_; }

 protected:
  std::exception_ptr expired(Seconds waited_s) override;

 private:
  std::weak_ptr<LocalHub> hub_;
  std::shared_ptr<Membership> group_;
  Rank rank_;
  std::int64_t sequence_ = -1;  ///< -1: a message between two ranks
  Signature signature_;
};

class LocalHub {
 public:
  /// `world` names the ranks of this hub in errors.
  LocalHub(std::vector<Rank> world, Seconds timeout_s);
  int size() const { return static_cast<int>(world_.size()); }
  Rank world(Rank rank) const { return world_[static_cast<std::size_t>(rank)]; }
  const std::vector<Rank>& worlds() const { return world_; }
  Seconds timeout_s() const { return timeout_s_; }

  /// A collective of `rank`; `pool` holds its reusable results.
  using Pool = std::vector<std::shared_ptr<LocalPending>>;
  Handle collective(Rank rank, const std::shared_ptr<LocalHub>& self,
                    const std::shared_ptr<Membership>& group, Pool& pool, const LocalPart& part,
                    std::span<const std::int64_t> out_counts,
                    std::span<const std::int64_t> in_counts, std::string_view name = {});
  Handle message(Rank rank, const std::shared_ptr<LocalHub>& self,
                 const std::shared_ptr<Membership>& group, Pool& pool, CallKind kind,
                 LocalMessage& message);

  /// The membership of `rank` knows that the group is over: what this rank waits for here ends with
  /// its error.
  void end(Rank rank, const Fault& fault);
  /// A rank has dropped its communicator: who waits for it is told at once.
  void leave(Rank rank, Membership& group);
  std::exception_ptr expired(Rank rank, const Signature& signature, std::int64_t sequence,
                             Membership& group, Seconds waited_s);
  /// The hub of one colour of the `nth` split; the first to ask makes it.
  std::shared_ptr<LocalHub> child(std::int64_t nth, int color, const std::vector<Rank>& members);

 private:
  /// With the mutex held: what is wrong ends the group, unless something did before.
  void claim(Rank at_fault, const std::string& wrong);
  [[noreturn]] static void refuse(const Fault& fault, const Signature& signature,
                                  Membership& group);
  LocalCall& find_or_start(std::int64_t sequence);
  LocalCall* find(std::int64_t sequence);
  std::string trouble(const LocalCall& call, Rank rank, const LocalPart& part,
                      std::string_view name) const;
  std::string pair_trouble(const LocalCall& call) const;
  static void run(LocalCall& call);
  void release(LocalCall& call);
  std::shared_ptr<LocalPending> take(const std::shared_ptr<LocalHub>& self,
                                     const std::shared_ptr<Membership>& group, Pool& pool,
                                     Rank rank, const Signature& signature,
                                     std::int64_t sequence) const;
  std::optional<std::size_t> match(const std::vector<LocalMessage>& waiting,
                                   const LocalMessage& message, bool sending) const;
  std::string deliver(LocalMessage& send, LocalMessage& recv);
  std::string missing(Rank rank, const Signature& signature, std::int64_t sequence,
                      const Membership& group) const;

  const std::vector<Rank> world_;
  const Seconds timeout_s_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;  ///< a running call has ended
  std::optional<Fault> over_;
  std::vector<std::int64_t> next_;                 ///< per rank: the number of its next collective
  std::vector<char> gone_;                         ///< per rank: has dropped its communicator
  std::vector<std::unique_ptr<LocalCall>> calls_;  ///< sequence -1: free for reuse
  std::vector<LocalMessage> sends_, recvs_, spare_;
  struct Child {
    std::shared_ptr<LocalHub> hub;
    int asked = 0;
  };
  std::map<std::pair<std::int64_t, int>, Child> children_;
};

}  // namespace thinwire
