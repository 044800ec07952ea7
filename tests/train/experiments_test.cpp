// SPDX-License-Identifier: Apache-2.0
// Every experiment names only models, optimizers and forms that this build has.
#include <gtest/gtest.h>

#include "thinwire/train/job.h"
#include "thinwire/train/reproduce.h"

namespace thinwire {
namespace {

TEST(Experiments, NameOnlyWhatThisBuildHas) {
  for (const auto& name : experiment_names()) {
    const Experiment e = find_experiment(name);
    for (const Arm& arm : e.arms)
      EXPECT_NO_THROW(check_names(config_of(e, arm, 1, false))) << name << ", " << arm.name;
  }
}

}  // namespace
}  // namespace thinwire
