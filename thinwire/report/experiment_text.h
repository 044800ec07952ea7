// SPDX-License-Identifier: Apache-2.0
// An experiment's outcome for readers: lines for a terminal, a section of docs/experiments.md, a
// page, an object.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "thinwire/report/experiment.h"
#include "thinwire/report/statistics.h"

namespace thinwire {

/// One arm over its seeds. Means are of the finished runs.
struct ArmSummary {
  const Arm* arm = nullptr;
  int finished = 0, diverged = 0, failed = 0;
  double test_accuracy = 0, test_loss = 0, bytes_per_step = 0, step_s = 0;  ///< step_s: median
  std::optional<MeanInterval> gain;  ///< accuracy minus the control's at the same seed, in points
  std::vector<double> gains;         ///< the same, a seed each
  std::optional<double> less;        ///< the control's bytes over its own
};
/// In the order of the experiment; arms that have not run are left out.
std::vector<ArmSummary> summaries(const Experiment& experiment, const Measured& measured);

/// The options that make an arm what it is, "form=ef|topk{ratio=0.01}"; "as base" where there are
/// none.
std::string options_text(const Arm& arm);
/// A line an arm, then the verdict and a line a rule.
std::string text_outcome(const Experiment& experiment, const Measured& measured);
/// A section with the command, the claim, the table and the verdict.
std::string markdown_outcome(const Experiment& experiment, const Measured& measured);
Json json_outcome(const Experiment& experiment, const Measured& measured);
/// One HTML file with everything in it.
std::string html_outcome(const Experiment& experiment, const Measured& measured);
/// The end of a section: the verdict, and a line a rule.
std::string markdown_verdict(const Judgement& judgement);
/// What each rule came to; `rules`: those that were judged.
template <class Rules>
Json json_rules(const Rules& rules, const Judgement& judgement) {
  Json out = Json::array();
  for (std::size_t i = 0; i < judgement.rules.size(); ++i)
    out.push_back({{"rule", word(rules[i].kind)},
                   {"arm", rules[i].arm},
                   {"state", word(judgement.rules[i].state)},
                   {"sentence", judgement.rules[i].sentence}});
  return out;
}
/// Runs that diverged or failed, a sentence each.
std::vector<std::string> troubles(const Measured& measured);

}  // namespace thinwire
