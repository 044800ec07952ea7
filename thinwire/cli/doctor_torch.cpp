// SPDX-License-Identifier: Apache-2.0
// What `thinwire doctor` says about the torch in this build.
#include "thinwire/cli/doctor.h"
#include "thinwire/train/torch_build.h"

namespace thinwire::cli {

Json torch_part() {
  Json versions = torch_versions();
  versions["threads"] = compute_threads();
  return versions;
}

}  // namespace thinwire::cli
