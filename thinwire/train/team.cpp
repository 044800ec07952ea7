// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/team.h"

#include "thinwire/comm/membership.h"

namespace thinwire {

Team::Team(Comm* world) : world_(world && world->size() > 1 ? world : nullptr) {
  if (world_) own_ = world_->split(0, world_->rank());
}

Handle Team::sum(TeamMessage what, std::int64_t step, std::span<double> values) {
  if (!world_) return {};
  return own_->all_reduce({static_cast<std::int32_t>(what), step},
                          {values.data(), static_cast<std::int64_t>(values.size()), DType::f64},
                          Combine::sum);
}

std::vector<std::int64_t> Team::all(TeamMessage what, std::int64_t step, std::int64_t value) {
  if (!world_) return {value};
  std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
  own_->all_gather({static_cast<std::int32_t>(what), step}, {values.data(), size(), DType::i64},
                   {&value, 1, DType::i64})
      .wait();
  return values;
}

void Team::copy_first(const MessageId& id, void* data, Bytes bytes) {
  if (world_) own_->broadcast(id, {data, bytes, DType::u8}, 0).wait();
}

std::string Team::from_first(const std::string& topic, const std::string& text) {
  return texts(topic, rank() == 0 ? text : std::string()).front();
}

std::vector<std::string> Team::texts(const std::string& topic, const std::string& text) {
  if (!world_) return {text};
  return world_->membership()->all_gather(topic, text);
}

Bytes Team::sent_bytes() const {
  if (!world_) return 0;
  const CommCounters counters = world_->counters();
  return counters.payload_bytes + counters.header_bytes;
}

}  // namespace thinwire
