// SPDX-License-Identifier: Apache-2.0
// Transport `mpi` in a build without MPI: known by name, refused in words.
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {

void register_mpi(Registry<CommFactory>& registry) {
  registry.add(
      "mpi",
      [](const Spec&, const JoinOptions&) -> std::unique_ptr<Comm> {
        throw UnsupportedError(
            "mpi: this build has no MPI; install libopenmpi-dev and configure with -DTW_MPI=ON");
      },
      "Open MPI under mpirun (not in this build)");
}

}  // namespace thinwire
