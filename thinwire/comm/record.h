// SPDX-License-Identifier: Apache-2.0
// Decorator `record{calls=16384}`: keeps what was called, in the order of starts, with its bytes
// and times. Tests and reports count exchanges and payload bytes with it; it never touches the
// data.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire {

struct CallRecord {
  std::int64_t order = 0;  ///< the number of the call on this rank, from 0
  CallKind kind = CallKind::barrier;
  MessageId id;
  DType dtype = DType::u8;
  std::int64_t count = 0;   ///< elements: of the buffer; all_gather, all_to_all: of the input;
                            ///< reduce_scatter: of the output
  Bytes payload_bytes = 0;  ///< count times the element's bytes; 0 for a barrier
  Bytes sent_bytes = 0;     ///< what this rank puts on a wire (bandwidth-optimal forms, no headers)
  int ranks = 0;            ///< of the communicator, so that calls of sub-groups can be told apart
  Deadline started{};
  std::optional<Deadline> ended;  ///< nothing: still under way
};

/// Any thread may ask. A rank's communicator and its sub-groups share one log.
class CallLog {
 public:
  explicit CallLog(std::int64_t capacity);
  std::vector<CallRecord> calls() const;  ///< oldest first; at most `capacity`
  std::int64_t total() const;             ///< calls since the start or the last clear()
  Bytes payload_bytes() const;            ///< of all of them, those no longer kept too
  /// How many calls of this kind carry this exchange and, if given, this step.
  std::int64_t count(CallKind kind, std::int32_t exchange,
                     std::optional<std::int64_t> step = std::nullopt) const;
  void clear();

 private:
  friend class RecordComm;
  /// Returns the call's number, which ended() takes.
  std::int64_t begin(CallRecord record);
  void under_way(std::int64_t order, Handle handle);
  void sweep() const;
  void set_ended(std::int64_t order, Deadline when) const;

  mutable std::mutex mutex_;
  const std::size_t capacity_;
  std::int64_t next_ = 0, first_ = 0;  // first_: the number after the last clear()
  Bytes payload_bytes_ = 0;
  mutable std::vector<CallRecord> ring_;
  mutable std::vector<std::pair<std::int64_t, Handle>> open_;
};

/// Wraps `inner`; the log lives as long as somebody holds it.
std::unique_ptr<Comm> record(std::unique_ptr<Comm> inner, std::shared_ptr<CallLog> log);
/// The log of a communicator made as "record|...", wherever in the chain; null if there is none.
std::shared_ptr<CallLog> call_log(Comm& comm);

}  // namespace thinwire
