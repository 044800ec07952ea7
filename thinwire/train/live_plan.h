// SPDX-License-Identifier: Apache-2.0
// plan=auto of a model that trains: measures in its own first steps where nothing has been measured
// before, chooses, and looks on. Where windows of steps take another time than was predicted, the
// links are measured again, slow ranks are taken into account, and a plan that is a tenth quicker
// takes over between two steps. No torch in this header.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/core/notice.h"
#include "thinwire/sim/search.h"
#include "thinwire/train/auto_plan.h"
#include "thinwire/train/drift.h"
#include "thinwire/train/team.h"

namespace thinwire {

class GradientSync;

struct LivePlanOptions {
  std::vector<std::string> forms;  ///< to be considered
  bool replan = true;              ///< false: the first plan stays while the model does
  NoticeFn say;                    ///< what was seen and what changes, on rank 0; empty: nowhere
};

/// Everything is collective: one on each rank of an engine.
class LivePlan {
 public:
  /// The grouping that the first steps should have, so that nothing travels while they compute.
  static constexpr const char* kFirstGrouping = "single";

  /// Chooses after some steps; until then the engine's own grouping and form count. `sync` and
  /// `world` outlive it.
  LivePlan(GradientSync& sync, Comm& world, LivePlanOptions options);
  /// Goes on from `planned`, under whose plan the engine is.
  LivePlan(GradientSync& sync, Comm& world, LivePlanOptions options, AutoPlan planned);

  /// Before begin() of every step that exchanges. May take some seconds, and put another plan in
  /// place; then it returns true.
  bool between_steps();
  /// What is measured and chosen now; nothing before the first choice.
  const std::optional<AutoPlan>& planned() const { return planned_; }

 private:
  struct Window {
    std::vector<Seconds> step_s, compute_s, rest_s;
    void clear() {
      for (auto* times : {&step_s, &compute_s, &rest_s}) times->clear();
    }
  };
  void watch();
  void start_anew();
  void choose_first();
  void look(Seconds step_s, const std::vector<Seconds>& compute_s);
  void take(Choice choice);
  void say(const std::string& text) const;

  GradientSync& sync_;
  Comm& world_;
  LivePlanOptions options_;
  Team team_;
  std::optional<AutoPlan> planned_;
  std::uint64_t digest_ = 0;  ///< of the plan that the engine should have
  std::int64_t first_step_ = 0, windows_ = 0;
  Deadline began_{};               ///< the step before
  std::int64_t step_before_ = -1;  ///< number of the step that began then
  Window window_;
  Drift drift_;
  std::vector<Seconds> compute_s_;  ///< of each rank while all was as expected; empty: not known
};

}  // namespace thinwire
