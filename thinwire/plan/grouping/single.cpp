// SPDX-License-Identifier: Apache-2.0
// One message for the whole model (one for each dtype): fewest start-ups, no overlap with the
// backward pass. Called SyncEASGD or single-layer communication by Shi, Chu, Li (INFOCOM 2019),
// https://arxiv.org/abs/1811.11141 Bytes: all of them, after the backward pass.
#include <map>

#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {

void register_single(GroupRegistry& registry) {
  registry.add(
      "single",
      [](const GroupInput& input, const Spec& spec) {
        SpecReader(spec).finish();
        const auto& params = input.profile.params;
        std::map<DType, std::vector<int>> members;
        for (int tensor = static_cast<int>(params.size()); tensor-- > 0;)
          members[params[static_cast<std::size_t>(tensor)].dtype].push_back(tensor);
        // The dtype whose last gradient is ready first, that is whose smallest tensor number is
        // largest, goes first.
        std::map<int, const std::vector<int>*, std::greater<>> by_last;
        for (const auto& [dtype, tensors] : members) by_last[tensors.back()] = &tensors;
        Grouping out;
        for (const auto& [last, tensors] : by_last) out.push_back(whole_tensors(*tensors, params));
        return out;
      },
      "one message for all tensors of a dtype, after the backward pass");
}

}  // namespace thinwire
