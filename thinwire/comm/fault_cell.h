// SPDX-License-Identifier: Apache-2.0
// Internal to comm: the fault that ended a group, and those who want to hear of it.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "thinwire/comm/membership.h"

namespace thinwire {

class FaultCell {
 public:
  /// Keeps the first fault. True if it was this one; then somebody must call deliver().
  bool set(const Fault& fault);
  std::optional<Fault> get() const;
  /// Calls the subscribers in the calling thread. Harmless without a fault, or again.
  void deliver();
  std::shared_ptr<void> subscribe(std::function<void(const Fault&)> fn);

 private:
  struct Subscription;
  mutable std::mutex mutex_;
  std::optional<Fault> fault_;
  std::vector<std::weak_ptr<Subscription>> subscriptions_;
};

}  // namespace thinwire
