// SPDX-License-Identifier: Apache-2.0
// Where a program begins: which rank it is, and its transport to the others. No torch.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"

namespace thinwire {

/// This process's place in a run, and its world communicator. Movable; ends the membership when
/// destroyed.
class Context {
 public:
  explicit Context(std::unique_ptr<Comm> comm) : comm_(std::move(comm)) {}
  Rank rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  Comm& comm() { return *comm_; }

 private:
  std::unique_ptr<Comm> comm_;
};

/// launch_environment() with the means to meet: under torchrun rank 0's address goes through the
/// agent's own store. `timeout_s` replaces the environment's deadline; 0 does not.
std::optional<LaunchEnvironment> find_launch(Seconds timeout_s = 0);

/// Collective. Joins by the environment of a launcher (thinwire, torchrun, mpirun, srun); without
/// one this is the only rank. `transport`: a transport spec; empty: "tcp", or "none" for one rank.
Context init(std::string_view transport = {});

}  // namespace thinwire
