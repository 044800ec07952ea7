// SPDX-License-Identifier: Apache-2.0
// Transport `c10d`, torch side: any c10d process group of the caller, or Gloo made here.
// docs/comm.md says what it can.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>

#include "thinwire/comm/comm.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace thinwire {

/// Puts "c10d" into transports(): Gloo over a membership joined as `tcp` joins. Call it once, any
/// time before make_comm.
void register_c10d();

/// Wraps a process group whose ranks are those of `group`. Its CPU backend is used if it has one;
/// otherwise (NCCL) each call works on copies on the calling thread's current device, and there is
/// neither send() nor recv(), as such a backend does not match tags. `store` is needed by split()
/// alone, which makes a Gloo group for each part, or splits the backend; without it split() is an
/// UnsupportedError. Collective. The process group is the communicator's from here
/// on: calls of the caller's own in between would mix with ours.
std::unique_ptr<Comm> wrap_process_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::shared_ptr<Membership> group,
    const c10::intrusive_ptr<c10d::Store>& store = {});

/// Makes Gloo, with a store of its own on rank 0. Collective over `group`.
std::unique_ptr<Comm> make_gloo(std::shared_ptr<Membership> group);

/// For JoinOptions::publish under torchrun, whose agent holds a TCPStore at host:port: rank 0's
/// address goes through the key "<key_prefix>/address".
std::function<std::string(const std::string&)> publish_through_store(const std::string& host,
                                                                     int port,
                                                                     const std::string& key_prefix,
                                                                     Rank rank,
                                                                     Seconds timeout_s = 300);

}  // namespace thinwire
