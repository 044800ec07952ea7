// SPDX-License-Identifier: Apache-2.0
// plan=auto: measures the model, the forms and the network for a few seconds and chooses. No torch
// in this header.
#pragma once
#include <map>
#include <string>

#include "thinwire/comm/comm.h"
#include "thinwire/sim/search.h"
#include "thinwire/train/config.h"
#include "thinwire/train/measure_cluster.h"

namespace thinwire {

struct Dataset;

/// What was measured: of rank 0 where ranks differ, with the others' speeds beside it.
struct MeasuredTraining {
  Profile profile;
  Cluster cluster;
  std::map<std::string, double> residual;  ///< of the links' fits
};

/// Collective. Steps of a model of the configuration's own, which nothing else sees: training goes
/// on as if nothing had been measured. The same on every rank, but for the speeds of `forms`: they
/// are timed on rank 0 alone, and those that cannot be are left out. `anew`: also those that were
/// timed on this machine in the last week.
MeasuredTraining measure_training(const TrainConfig& config, const Dataset& data, Comm& world,
                                  const std::vector<std::string>& forms, bool anew = false);

/// Collective. The links, with messages as large as the model has them.
MeasuredCluster measure_links(const Profile& profile, Comm& world);
/// Collective. The rest of it, where each rank has timed its own steps: the links, the speeds of
/// ranks and forms.
MeasuredTraining measure_beside(const Profile& own, Comm& world,
                                const std::vector<std::string>& forms, bool anew = false);

struct AutoPlan {
  MeasuredTraining measured;
  Choice choice;  ///< of rank 0; on the others only the plan, its step and the verdict
};
/// Collective: rank 0 searches, and tells the others. ConfigError on all ranks where it finds no
/// plan.
Choice choose(const MeasuredTraining& measured, const std::vector<std::string>& forms, Comm& world);
/// Collective. ConfigError on all ranks where rank 0 finds no plan.
AutoPlan choose_plan(const TrainConfig& config, const Dataset& data, Comm& world);

/// The forms that config.forms names, else those of its quality.
std::vector<std::string> forms_to_consider(const TrainConfig& config);

}  // namespace thinwire
