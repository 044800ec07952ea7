// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/ready_cache.h"

#include <algorithm>

namespace thinwire {

std::optional<int> ReadyCache::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

void ReadyCache::use(int number) { slots_[static_cast<std::size_t>(number)].used = clock_++; }

bool ReadyCache::insert(const ReadyName& ready) {
  // A free number is "used" before all others, so the search for the oldest finds it.
  auto place = std::min_element(slots_.begin(), slots_.end(),
                                [](const Slot& a, const Slot& b) { return a.used < b.used; });
  const bool full = size() == capacity_;
  if (place == slots_.end() || (place->used >= 0 && !full))
    place = slots_.insert(slots_.end(), Slot{});
  const int number = static_cast<int>(place - slots_.begin());
  const bool evicts = place->used >= 0;
  if (evicts) erase(number);
  place->ready = ready;
  numbers_[ready.name] = number;
  use(number);
  return evicts;
}

void ReadyCache::erase(int number) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  numbers_.erase(slot.ready.name);
  slot = {};
}

}  // namespace thinwire
