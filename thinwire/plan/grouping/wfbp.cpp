// SPDX-License-Identifier: Apache-2.0
// Wait-free backpropagation: every tensor is a message of its own, sent as soon as its gradient is
// ready. Zhang, Zheng, Xu, Dai, Ho, Liang, Hu, Wei, Xie, Xing, "Poseidon" (USENIX ATC 2017),
// https://arxiv.org/abs/1706.03292 Bytes: all of them, in as many messages as there are tensors.
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {

void register_wfbp(GroupRegistry& registry) {
  registry.add(
      "wfbp",
      [](const GroupInput& input, const Spec& spec) {
        SpecReader(spec).finish();
        Grouping out;
        for (int tensor = static_cast<int>(input.profile.params.size()); tensor-- > 0;)
          out.push_back(whole_tensors({tensor}, input.profile.params));
        return out;
      },
      "one message a tensor, the last tensor first");
}

}  // namespace thinwire
