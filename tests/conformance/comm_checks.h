// SPDX-License-Identifier: Apache-2.0
// What every transport must do, as functions that each rank calls on its communicator: against a
// sequential oracle that every rank computes for itself. A check throws std::runtime_error with
// words; it needs no test framework, so it runs in threads, in processes and under mpirun alike.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire::test {

struct CommCheck {
  std::string name;
  std::function<void(Comm&)> run;
};

/// In a fixed order, so that ranks in several processes meet in the same ones. `large` adds
/// 1,000,003 elements.
std::vector<CommCheck> comm_checks(bool large);

/// Runs all on this rank; the error of the first that fails names it.
void run_comm_checks(Comm& comm, bool large);

}  // namespace thinwire::test
