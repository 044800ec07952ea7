// SPDX-License-Identifier: Apache-2.0
// Who belongs to a run and who is alive. Under every transport lies one Membership a rank: a small
// control connection to each other rank, one thread, a heartbeat every min(T/4, 250 ms), and faults
// passed on to everybody, so that dead, frozen and late can be told apart and every waiter wakes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/core/types.h"

namespace thinwire {

/// How a rank finds its group.
struct JoinOptions {
  Rank rank = 0;
  int size = 1;
  /// "HOST:PORT": rank 0 listens there, the others connect. "file:PATH": rank 0 listens on a free
  /// port and writes its address to PATH. Empty with size 1: alone. Empty with `publish`: see
  /// there.
  std::string address;
  /// Called on all ranks, rank 0 with the address it listens on, the others with ""; returns rank
  /// 0's address. For launchers that have a key-value store of their own (torchrun, MPI).
  std::function<std::string(const std::string& own_address)> publish;
  std::string run_id;  ///< empty on all ranks: rank 0 makes one. Different ones never form a group:
                       ///< ConfigError
  Seconds timeout_s = 300;  ///< T, the deadline of joining and of every wait
  std::string interface;    ///< network interface to use; empty: the one that routes to rank 0.
                            ///< Unknown: ConfigError
  int port_first = 0,
      port_last =
          0;  ///< ports for the listening sockets other than the rendezvous; 0: any free one
  std::string version;  ///< compared on all ranks; empty: this library's version
};

/// From the environment of a launcher: ours (THINWIRE_*), torchrun, Open MPI, Slurm. Nothing where
/// there is none. `source` names the launcher. Half an environment (a rank without a size) is a
/// ConfigError.
struct LaunchEnvironment {
  JoinOptions join;
  std::string source;
  int local_rank = 0, local_size = 1;
  /// torchrun's key-value store; join.publish is to be filled from it (comm/c10d.h), as address is
  /// empty.
  std::string store_host;
  int store_port = 0;
};
std::optional<LaunchEnvironment> launch_environment();

/// What ended a group. `rank` is the rank at fault (-1: several or unknown).
struct Fault {
  Rank rank = -1;
  std::string text;     ///< "rank 1 died: its connection was closed without a farewell"
  bool config = false;  ///< ranks disagree about what the user wrote: ConfigError, else CommError
};

class Membership {
 public:
  virtual ~Membership() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& run_id() const = 0;
  virtual Seconds timeout_s() const = 0;
  /// Numeric address of a rank as seen on the interface chosen, without port; empty for in-process
  /// groups.
  virtual std::string address_of(Rank rank) const = 0;
  /// One line: interface, local address, peer addresses. For people.
  virtual std::string describe() const = 0;

  /// Collective on the control connections: everybody's `blob`, in rank order. Slow (control
  /// plane), for set-up, digests and comparisons. At the deadline: CommError that names `topic` and
  /// the missing ranks.
  virtual std::vector<std::string> all_gather(const std::string& topic, std::string_view blob) = 0;

  /// Tells what this rank has started last (wait-free, travels with heartbeats), so that others can
  /// say in words how far a late rank is.
  virtual void started(CallKind kind, const MessageId& id) = 0;
  /// The last call that `rank` is known to have started, in words; empty if none.
  virtual std::string last_started(Rank rank) const = 0;
  /// Seconds since the last sign of life of `rank`; 0 for oneself.
  virtual Seconds silent_s(Rank rank) const = 0;

  /// Whether `rank` has left in order. It starts no further call; what it has sent before may still
  /// be on its way.
  virtual bool has_left(Rank rank) const = 0;

  /// Ends the group with this fault, on all ranks; the first one wins. Returns the one in force.
  /// Any thread.
  virtual Fault fail(const Fault& fault) = 0;
  virtual std::optional<Fault> fault() const = 0;
  /// Calls `fn` once when the group ends: on the membership's thread, in an in-process group on the
  /// thread that calls fail(), and at once, in the calling thread, if it already has. `fn` must be
  /// quick and must not wait. Dropping the token ends the subscription; afterwards fn is not
  /// running and never will. Call neither fail() nor on_fault(), nor drop the token, with a lock
  /// held that fn takes.
  virtual std::shared_ptr<void> on_fault(std::function<void(const Fault&)> fn) = 0;
  /// Orderly end: the others are told that this is no death. Called by the destructor too, which
  /// never waits; a destructor that runs because an exception unwinds the stack reports a death
  /// instead, so that the others need not wait for this rank until their deadline.
  virtual void leave() = 0;
};

/// Joins over TCP. Collective; at the deadline a CommError says how many of how many came, who is
/// missing and where this rank looked for them.
std::shared_ptr<Membership> join_group(const JoinOptions& options);
/// n memberships of one in-process group.
std::vector<std::shared_ptr<Membership>> local_group(int ranks, Seconds timeout_s,
                                                     std::string run_id = "local");

/// The error of a fault: ConfigError or CommError with "<what>: <fault text>".
std::exception_ptr error_of(const Fault& fault, const std::string& what);

/// Compares `value` (any text, for example a digest) on all ranks; a difference is a ConfigError
/// with the same text on all of them: "<what> differs between ranks: rank 0 has A, rank 2 has B".
/// Collective.
void must_agree(Membership& group, const std::string& what, const std::string& value);

}  // namespace thinwire
