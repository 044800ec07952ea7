// SPDX-License-Identifier: Apache-2.0
// Internal to comm: one line a transport and a decorator. comm/registry.cpp calls them; how to add
// one: docs/howto/add-a-transport.md.
#pragma once
#include <memory>
#include <span>
#include <utility>

#include "thinwire/comm/comm.h"

namespace thinwire {

void register_local(Registry<CommFactory>& registry);  // also `none`
void register_tcp(Registry<CommFactory>& registry);
void register_mpi(Registry<CommFactory>& registry);
void register_record(Registry<DecoratorFactory>& registry);
void register_throttle(Registry<DecoratorFactory>& registry);
void register_fault(Registry<DecoratorFactory>& registry);

/// Over a membership made elsewhere: ranks as threads talk through real sockets in tests.
/// Collective.
std::unique_ptr<Comm> make_tcp(const Spec& spec, std::shared_ptr<Membership> membership,
                               std::pair<int, int> ports = {0, 0});

/// What makes a communicator over c10d. The torch side puts it in (comm/c10d.h); empty without it.
CommFactory& c10d_factory();

/// Wraps `comm` in the decorators of the chain; the first is the outermost.
std::unique_ptr<Comm> decorate(std::span<const Spec> chain, std::unique_ptr<Comm> comm);

}  // namespace thinwire
