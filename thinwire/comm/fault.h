// SPDX-License-Identifier: Apache-2.0
// Decorator `fault{action=kill, rank=1, call=10}`: makes one rank misbehave at a chosen call, to
// see what the others are told. From a test: arm() at any time. With no action it passes everything
// on.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire {

enum class FaultAction : std::uint8_t {
  drop,     ///< the call is left out: its handle waits until the deadline or the end of the group
  delay,    ///< the rank is late: the call starts delay_s later
  corrupt,  ///< one bit in the middle of this rank's contribution is turned, in the caller's memory
  die,      ///< the rank reports its own death and throws CommError: a kill for ranks as threads
  kill      ///< SIGKILL to the process
};
std::string_view to_string(FaultAction action);

struct FaultPlan {
  FaultAction action = FaultAction::drop;
  Rank rank = -1;                        ///< of the world; -1: every rank
  std::optional<std::int64_t> call;      ///< the number of the call on this rank, from 0
  std::optional<std::int32_t> exchange;  ///< the call must carry this exchange
  std::optional<std::int64_t> step;      ///< and this step
  Seconds delay_s = 0;
  int times = 1;  ///< how many calls it hits; -1: all that match
};

/// Shared by a rank's communicator and its sub-groups; any thread.
class FaultControl {
 public:
  void arm(const FaultPlan& plan);
  std::int64_t calls() const;  ///< calls seen so far

 private:
  friend class FaultComm;
  std::vector<FaultPlan> next(Rank rank, const MessageId& id);
  mutable std::mutex mutex_;
  std::int64_t calls_ = 0;
  std::vector<FaultPlan> plans_;
};

/// Wraps `inner`; the control may be kept and used later.
std::unique_ptr<Comm> inject_faults(std::unique_ptr<Comm> inner,
                                    std::shared_ptr<FaultControl> control);
/// The control of a communicator made as "fault|...", wherever in the chain; null if there is none.
std::shared_ptr<FaultControl> fault_control(Comm& comm);

}  // namespace thinwire
