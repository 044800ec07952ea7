// SPDX-License-Identifier: Apache-2.0
// The result of a call that has started: wait for it, ask whether it is there. Errors of the
// transport arrive here.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "thinwire/core/types.h"

namespace thinwire {

/// The transport's side of a Handle. A transport keeps its own objects and reuses one as soon as no
/// Handle holds it (shared_ptr::use_count() == 1), so that a step in steady state allocates
/// nothing.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Makes the object fresh for a new call with this deadline.
  void restart(Deadline deadline);
  void complete();  ///< idempotent; the first of complete and fail wins
  void fail(std::exception_ptr error);
  bool done() const { return done_.load(std::memory_order_acquire); }
  Deadline ended() const { return ended_; }  ///< when it was completed or failed; once done()

 protected:
  /// The wait ran past its deadline: says who is missing, tells the group, and returns the error to
  /// throw.
  virtual std::exception_ptr expired(Seconds waited_s) = 0;
  /// Called by the waiting thread before it sleeps: lets a transport make progress on the caller's
  /// core. Optional.
  virtual void help() {}

 private:
  friend class Handle;
  void wait_until(Deadline deadline);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_{true};
  std::exception_ptr error_;
  Deadline deadline_{}, started_{}, ended_{};
};

/// A small value; copies share the result. A default-made handle is complete. Dropping it does not
/// cancel: the transport finishes or parks the work, and the buffers must stay valid until then.
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
  /// Returns when the result is in the buffer. Throws CommError when a peer is dead, frozen, late
  /// past the group's deadline, or disagrees. May be called again and from any thread: same answer.
  void wait() const;
  void wait_until(Deadline deadline) const;
  bool ready() const { return !pending_ || pending_->done(); }
  /// When the result was there, for traces; once ready(). Nothing: at once, when it was called.
  std::optional<Deadline> ended() const {
    return pending_ ? std::optional(pending_->ended()) : std::nullopt;
  }

 private:
  std::shared_ptr<Pending> pending_;
};

/// Called about every 100 ms by each waiting thread; it may throw to end the wait (the Python front
/// checks for Ctrl-C here). Returns the one before.
using InterruptFn = std::function<void()>;
InterruptFn on_interrupt_check(InterruptFn fn);
/// Runs that callback once: for waits of the library that are no Handle.
void check_interrupt();

}  // namespace thinwire
