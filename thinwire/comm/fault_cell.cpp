// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/fault_cell.h"

#include <utility>

namespace thinwire {

/// One subscriber. The mutex is held while fn runs, so that who drops the token waits for it; it is
/// recursive because fn may drop its own token.
struct FaultCell::Subscription {
  std::recursive_mutex mutex;
  std::function<void(const Fault&)> fn;

  void call(const Fault& fault) {
    std::lock_guard lock(mutex);
    const auto once = std::exchange(fn, nullptr);
    if (once) once(fault);
  }
  void cancel() {
    std::lock_guard lock(mutex);
    fn = nullptr;
  }
};

bool FaultCell::set(const Fault& fault) {
  std::lock_guard lock(mutex_);
  if (fault_) return false;
  fault_ = fault;
  return true;
}

std::optional<Fault> FaultCell::get() const {
  std::lock_guard lock(mutex_);
  return fault_;
}

void FaultCell::deliver() {
  std::vector<std::weak_ptr<Subscription>> listeners;
  {
    std::lock_guard lock(mutex_);
    if (!fault_) return;
    listeners.swap(subscriptions_);
  }
  for (const auto& weak : listeners)
    if (const auto listener = weak.lock()) listener->call(*fault_);  // never changes once set
}

std::shared_ptr<void> FaultCell::subscribe(std::function<void(const Fault&)> fn) {
  const auto subscription = std::make_shared<Subscription>();
  subscription->fn = std::move(fn);
  std::optional<Fault> over;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(subscriptions_, [](const auto& weak) { return weak.expired(); });
    subscriptions_.push_back(subscription);
    over = fault_;
  }
  if (over) subscription->call(*over);
  // The token is a handle of its own: the cell keeps only a weak one, and dropping the token
  // cancels.
  return {static_cast<void*>(subscription.get()),
          [subscription](void*) { subscription->cancel(); }};
}

}  // namespace thinwire
