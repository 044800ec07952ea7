// SPDX-License-Identifier: Apache-2.0
// Internal to comm: the way through rank 0. Every rank sends it the names that have become ready
// since its last message; rank 0 counts; a name that all ranks have sent stands in its answer, the
// same list for all.
//
// Bytes of one round with n ranks: each rank sends 16 and its names (12 and the letters of name and
// kind each) to rank 0, which sends n-1 times 16 and the names of its answer.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/ready_cache.h"

namespace thinwire {

/// Who waits for what, since when.
struct ReadyWaiting {
  ReadyName ready;
  Seconds waited_s = 0;
};

class ReadyCoordinator {
 public:
  /// `comm` outlives it.
  explicit ReadyCoordinator(Comm& comm) : comm_(comm) {}
  struct Answer {
    std::int64_t flags = 0;           ///< those of all ranks together
    std::vector<ReadyName> complete;  ///< in the order in which rank 0 found them complete
  };
  /// Collective: sends this rank's new names; returns at once.
  void start(const MessageId& id, std::int64_t flags, std::span<const ReadyName> mine);
  bool arrived() const { return first_.ready(); }  ///< whether finish() has something to go on with
  /// Collective: the answer. ConfigError on all ranks where two of them sent a name with different
  /// kinds.
  Answer finish();
  /// Collective: who lacks what others have waited for longer than `most_s`, and then what they
  /// have waited for half as long. Nothing: nobody.
  struct Stall {
    std::string text;
    Rank rank = -1;  ///< the one at fault; -1: several
  };
  std::optional<Stall> stalled(const MessageId& id, std::span<const ReadyWaiting> mine,
                               Seconds most_s);

 private:
  struct Counted {
    ReadyName ready;
    std::vector<bool> ranks;  ///< who has sent it
    int count = 0;
  };
  std::vector<std::string> gather();
  std::string broadcast(std::string text, std::int64_t& flags);
  std::string count(Rank from, const ReadyName& ready, std::vector<ReadyName>& complete);

  Comm& comm_;
  MessageId id_;
  std::string mine_;
  std::int64_t head_[2] = {0, 0};    ///< bytes that follow, flags
  std::vector<std::int64_t> heads_;  ///< of all ranks, on rank 0
  std::vector<std::int64_t> in_counts_, out_counts_;
  Handle first_;
  std::map<std::string, Counted> counted_;  ///< on rank 0: names that some ranks have not sent yet
};

}  // namespace thinwire
