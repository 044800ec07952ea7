// SPDX-License-Identifier: Apache-2.0
// The comm conformance suite as one rank of a launcher: comm_program TRANSPORT, for example under
// mpirun. Rank 0 prints one line; exit code 1 and the check that failed otherwise.
#include <cstdio>

#include "tests/conformance/comm_checks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

int main(int argc, char** argv) {
  using namespace thinwire;
  const std::string transport = argc > 1 ? argv[1] : "mpi";
  const test::Watchdog watchdog("comm conformance over " + transport, 240);
  try {
    JoinOptions join;
    join.timeout_s = 60;
    const auto comm = make_comm(transport, join);
    test::run_comm_checks(*comm, comm->size() == 2);
    if (comm->rank() == 0)
      std::printf("%zu checks passed over %s with %d ranks\n",
                  test::comm_checks(comm->size() == 2).size(), comm->caps().name.c_str(),
                  comm->size());
    comm->barrier("end");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
