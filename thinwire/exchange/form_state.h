// SPDX-License-Identifier: Apache-2.0
// What memories and codecs keep between steps, as named tensors: in checkpoints, and carried over
// where a plan is made anew.
//   gradient/ef/residual/fc1.weight[0:1000]   a rank's own, by values of a parameter
//   gradient/powersgd/p/fc1.weight            the same on all ranks
//   gradient/difference/mean/fc1.weight(0:1000)   the same on all ranks, by values of a parameter
//   gradient/threshold/bound/fc1.weight[]     a rank's own, by name
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "thinwire/codec/codec.h"
#include "thinwire/plan/plan.h"

namespace thinwire {

using FormState = std::map<std::string, at::Tensor>;

/// Whether an entry is a rank's own.
bool is_own(std::string_view key);

/// Walks one codec or memory of an exchange. `prefix`: "gradient/ef/".
class SaveState : public StateVisitor {
 public:
  SaveState(FormState& state, std::string prefix, const Plan& plan, const Bucket& bucket);
  void tensor(const std::string& name, Tensor& value) override;
  void integer(const std::string& name, std::int64_t& value) override;
  void elements(const std::string& name, Tensor& value) override;
  void shared_elements(const std::string& name, Tensor& value) override;
  void own(const std::string& name, Tensor& value) override;

 private:
  void put(const std::string& name, Tensor& value, std::string_view brackets);
  FormState& state_;
  std::string prefix_;
  const Plan& plan_;
  const Bucket& bucket_;
};

/// Leaves as it is what the state does not know. Values of a parameter are put together from
/// whatever pieces there are; the rest of a bucket of which some are known is zero.
class LoadState : public StateVisitor {
 public:
  LoadState(const FormState& state, std::string prefix, const Plan& plan, const Bucket& bucket);
  void tensor(const std::string& name, Tensor& value) override;
  void integer(const std::string& name, std::int64_t& value) override;
  void elements(const std::string& name, Tensor& value) override;
  void shared_elements(const std::string& name, Tensor& value) override;
  void own(const std::string& name, Tensor& value) override;

 private:
  void put_together(const std::string& name, Tensor& value, std::string_view brackets);
  const FormState& state_;
  std::string prefix_;
  const Plan& plan_;
  const Bucket& bucket_;
};

/// The own entries of several ranks as those of rank `rank` of `ranks`: an earlier rank r goes to
/// r % ranks, and what meets there is added, so that the sum over ranks stays; of what is kept by
/// name the first stays. `earlier[r]`: of rank r then; entries that are equal everywhere are taken
/// from rank 0.
FormState redistribute(std::span<const FormState> earlier, int rank, int ranks);

}  // namespace thinwire
