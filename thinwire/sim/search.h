// SPDX-License-Identifier: Apache-2.0
// Which plan to run: the one with the shortest simulated step among candidates, whole gradients
// always among them. Pure functions; the same inputs give the same choice on every rank.
//
// A candidate is a grouping and a form. Each of its buckets keeps the form only where that is
// quicker by itself, codec time counted: where bytes grow, or the codec takes longer than the wire
// saves, the bucket goes as it is. A form that makes the step less than 3 % shorter is not chosen.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/json.h"
#include "thinwire/plan/cluster.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// What a plan may change about the training.
enum class Quality : std::uint8_t {
  same,     ///< nothing: the same mathematics
  bounded,  ///< forms whose experiments show a loss of half a point at most
  free      ///< any form whose speed is known
};
std::string_view to_string(Quality quality);
Quality parse_quality(std::string_view text);  ///< ConfigError

/// A form that quality `bounded` admits, and what shows it: an arm of an experiment, with what it
/// lost against whole gradients (docs/experiments.md).
struct Admitted {
  std::string form;
  bool with_momentum;  ///< also before an optimizer that has momentum of its own
  std::string experiment, arm, loss;
};
const std::vector<Admitted>& admitted_forms();
/// The forms to be considered, "none" first: at `bounded` those of admitted_forms(), at `free` all
/// of them whatever the optimizer, and what people try first besides.
std::vector<std::string> forms_of(Quality quality, bool momentum);

struct SearchOptions {
  Quality quality = Quality::same;
  bool momentum = true;                ///< the optimizer has momentum of its own
  std::vector<std::string> forms;      ///< empty: forms_of(quality, momentum). Given: and "none"
  std::vector<std::string> groupings;  ///< empty: all, some with several options
  Bytes max_bytes_per_step = 0;        ///< sent by a rank, in the mean; 0: any number
  bool mixes = true;                   ///< each bucket may have the form, or be sent as it is
};

/// One candidate, or a form that was none.
struct Considered {
  std::string grouping, form;
  std::size_t messages = 0;    ///< in the plan; of all exchanges of gradients
  std::size_t left_dense = 0;  ///< of these, sent as they are because the form does not pay
  Seconds step_s = 0;          ///< simulated; 0: not simulated
  Seconds exposed_s = 0;       ///< of it, neither computing nor encoding
  Bytes bytes_per_step = 0;    ///< sent by the rank that sends most, in the mean
  std::string note;            ///< why it was refused, in words; empty: it was simulated
};

struct Choice {
  Plan plan;
  Considered chosen, dense;  ///< dense: the best with form "none"
  Seconds compute_s = 0;     ///< of the slowest rank
  /// No plan that sends as many bytes, all of them after the first gradient is there, has a shorter
  /// step.
  Seconds bound_s = 0;
  std::vector<Considered> others;  ///< by step, refused ones last
  std::string verdict;             ///< in a sentence or two
};

/// ConfigError where options are out of range, a name is unknown, or no candidate keeps within
/// max_bytes_per_step (the sentence names the least).
Choice search(const Profile& profile, const Cluster& cluster, const SearchOptions& options = {});

/// The step of a plan in steady state: the mean over a period (64 steps of a longer one) after the
/// first.
Seconds steady_step_s(const Plan& plan, const Profile& profile, const Cluster& cluster);
/// Sent in a step by the rank that sends most, in the mean.
Bytes bytes_per_step(const Plan& plan, const Cluster& cluster);

/// The same reasoning as a table for a terminal, and for programs.
std::string explain(const Choice& choice);
Json to_json(const Choice& choice);

}  // namespace thinwire
