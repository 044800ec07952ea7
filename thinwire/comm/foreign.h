// SPDX-License-Identifier: Apache-2.0
// Internal to comm: what the adapters of other libraries (`c10d`, `mpi`) share. Such a library does
// not compare calls: it hangs, ends the process or gives wrong sums when ranks disagree. So every
// collective is preceded by an exchange of 64 bytes a rank that says what is about to start; only
// when all say the same is the call handed on. The data goes through memory of our own, because a
// library that cannot cancel may write long after the caller has been told of a fault and has freed
// his. One progress thread a world communicator; it sleeps between looks.
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/signature.h"

namespace thinwire {

/// A call that the library has under way. Errors of the library are thrown by ready().
class ForeignCall {
 public:
  virtual ~ForeignCall() = default;
  virtual bool ready() = 0;
};

/// What is asked of the library. Signature kinds: all_reduce (sum, max, min, bit_and, bit_or),
/// all_gather, all_to_all, broadcast, send, recv. Memory and counts live until the call is ready.
struct ForeignRequest {
  Signature signature;
  Buffer in, out;
  std::vector<std::int64_t> in_counts, out_counts;  ///< all_to_all
};

/// The library's side of one communicator. All calls but split() come from the progress thread.
class ForeignOps {
 public:
  virtual ~ForeignOps() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;
  /// Whether send and recv can be had.
  virtual bool messages() const { return true; }
  /// Whether the library's own all_reduce takes this pair; else Thinwire sums, in rank order.
  virtual bool sums(DType dtype, Combine op) const = 0;
  virtual std::unique_ptr<ForeignCall> start(const ForeignRequest& request) = 0;
  /// Collective over the parent; called by the caller's thread. `members` in order; empty: this
  /// rank is in no group.
  virtual std::unique_ptr<ForeignOps> split(std::int64_t nth, int color,
                                            const std::vector<Rank>& members) = 0;
  /// The library still holds calls that will never end: give up what would wait for them.
  virtual void park() = 0;
};

/// A communicator over such a library. `world` names the ranks in errors.
std::unique_ptr<Comm> make_foreign(std::unique_ptr<ForeignOps> ops,
                                   std::shared_ptr<Membership> group);

/// Number of `id` as a tag of at most `bits` bits, for libraries that match messages by tags.
std::int32_t tag_of(const MessageId& id, int bits);

/// dst[i] /= ranks, for the floating types; f16 and bf16 through f32.
void divide(Buffer data, int ranks);

}  // namespace thinwire
