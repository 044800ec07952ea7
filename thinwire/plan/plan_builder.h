// SPDX-License-Identifier: Apache-2.0
// How exchanges get into a plan: a strategy declares them, a line each. No torch, so that a plan
// can be made, looked at and simulated without it.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/plan/plan.h"

namespace thinwire {

/// What the exchanges of a plan are between.
struct PlanInputs {
  std::vector<TensorDesc> tensors;
  Grouping grouping;
  int ranks = 1;
  std::vector<Spec> form;  ///< what the user wants tensors to travel in
  std::string algorithm;   ///< empty: chosen
  /// Gradients of bucket b go in steps where (step + b + 1) % every == 0.
  int every = 1;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(PlanInputs inputs);

  /// One exchange between all ranks for each bucket, of its gradients, parameters or deltas, in the
  /// user's form. Returns the number of the declaration. Declarations differ in role, pattern or
  /// start.
  int add(Role what, Pattern pattern, Combine combine, const When& start, const When& need);

  int ranks() const { return inputs_.ranks; }
  /// An exchange of each declaration, with bucket 0.
  const std::vector<Exchange>& declared() const { return declared_; }
  /// The plan of what has been declared, and the step header where gradients are exchanged.
  Plan plan() const;

 private:
  PlanInputs inputs_;
  std::vector<Exchange> declared_;
};

/// The exchanges of plain data parallelism: one mean all_reduce of gradients a bucket, started when
/// they are ready and needed before the update. Returns the declaration's number.
int declare_gradient_mean(PlanBuilder& plan);

/// The ids of the exchanges of `plan` that do what `declared` says (role, pattern, start), one a
/// bucket: where none has the same start, the one with its phase, for a plan may have another
/// interval. ConfigError where a bucket has none or several.
std::vector<int> exchanges_of(const Plan& plan, const Exchange& declared);

/// The step header: an all_gather in which every rank says which step it is at, which parameters it
/// has used, its samples, and whether a gradient is not finite. 8-byte words: 4, and two bits a
/// tensor.
std::size_t step_header_words(std::size_t tensors);
/// The id of the plan's step header; -1 if it has none.
int step_header(const Plan& plan);
/// Adds one, as the last exchange, to a plan that exchanges gradients and has none.
void add_step_header(Plan& plan);

}  // namespace thinwire
