// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "thinwire/exchange/exchanger.h"

namespace thinwire {

Recorder::Recorder(Rank rank, std::int64_t capacity)
    : rank_(rank),
      origin_(Clock::now()),
      ring_(static_cast<std::size_t>(std::max<std::int64_t>(capacity, 1))) {}

Seconds Recorder::now() const {
  return std::chrono::duration<double>(Clock::now() - origin_).count();
}

void Recorder::add(const Event& event) {
  Event& slot = ring_[static_cast<std::size_t>(count_++) % ring_.size()];
  slot = event;
  slot.rank = rank_;
}

Trace Recorder::trace() const {
  const auto size = static_cast<std::int64_t>(ring_.size());
  Trace out;
  for (std::int64_t i = std::max<std::int64_t>(0, count_ - size); i < count_; ++i)
    out.push_back(ring_[static_cast<std::size_t>(i % size)]);
  return out;
}

}  // namespace thinwire
