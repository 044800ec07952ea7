// SPDX-License-Identifier: Apache-2.0
// Every experiment names only models, optimizers and forms that this build has.
#include <gtest/gtest.h>

#include "thinwire/report/curve.h"
#include "thinwire/train/job.h"
#include "thinwire/train/reproduce.h"

namespace thinwire {
namespace {

TEST(Experiments, NameOnlyWhatThisBuildHas) {
  for (const auto& name : experiment_names()) {
    const ExperimentText file = experiment_text(name);
    if (experiment_kind(file.text, file.source) == "simulated") continue;
    const Experiment e = parse_experiment(file.text, file.source);
    for (const Arm& arm : e.arms)
      EXPECT_NO_THROW(check_names(config_of(e, arm, 1, false))) << name << ", " << arm.name;
  }
}

}  // namespace
}  // namespace thinwire
