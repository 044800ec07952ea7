// SPDX-License-Identifier: Apache-2.0
// Waiting. A waiter sleeps on its own condition in slices, so that a fault, the result, the
// deadline and an interrupt of the program all end the wait soon, and none of them costs a core.
#include "thinwire/comm/handle.h"

#include <algorithm>

namespace thinwire {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(100);

std::mutex interrupt_mutex;
std::shared_ptr<const InterruptFn> interrupt_fn;

Seconds seconds_since(Deadline start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

InterruptFn on_interrupt_check(InterruptFn fn) {
  auto next = fn ? std::make_shared<const InterruptFn>(std::move(fn)) : nullptr;
  std::lock_guard lock(interrupt_mutex);
  std::swap(interrupt_fn, next);
  return next ? *next : InterruptFn{};
}

void check_interrupt() {
  std::shared_ptr<const InterruptFn> fn;
  {
    std::lock_guard lock(interrupt_mutex);
    fn = interrupt_fn;
  }
  if (fn) (*fn)();
}

void Pending::restart(Deadline deadline) {
  std::lock_guard lock(mutex_);
  error_ = nullptr;
  deadline_ = deadline;
  started_ = Clock::now();
  done_.store(false, std::memory_order_release);
}

void Pending::complete() { fail(nullptr); }

void Pending::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    ended_ = Clock::now();
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Pending::wait_until(Deadline deadline) {
  while (!done()) {
    help();
    if (done()) break;
    const auto slice = std::min(Clock::now() + kSlice, deadline);
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_until(lock, slice, [this] { return done(); })) break;
    }
    check_interrupt();
    // expired() takes locks of the transport, so it runs outside ours; a result that arrives
    // meanwhile wins in fail().
    if (Clock::now() >= deadline) fail(expired(seconds_since(started_)));
  }
  std::exception_ptr error;
  {
    std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

void Handle::wait() const {
  if (pending_) pending_->wait_until(pending_->deadline_);
}

void Handle::wait_until(Deadline deadline) const {
  if (pending_) pending_->wait_until(std::min(deadline, pending_->deadline_));
}

}  // namespace thinwire
