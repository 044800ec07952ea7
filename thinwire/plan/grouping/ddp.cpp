// SPDX-License-Identifier: Apache-2.0
// The buckets of PyTorch's DistributedDataParallel (Li and others, PyTorch Distributed, VLDB 2020,
// https://arxiv.org/abs/2006.15704), from the second step on: tensors in backward order, a bucket
// closed once it has reached bucket_cap_mb, the first one 1 MiB. For plans that predict what DDP
// does.
//   bytes: all of them in every step; messages: about total / cap, one a dtype at least
// Departs from it: the order is that of registration reversed, where DDP takes the order in which
// gradients came in its first step.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {

void register_ddp(GroupRegistry& registry) {
  registry.add(
      "ddp",
      [](const GroupInput& input, const Spec& spec) -> Grouped {
        SpecReader in(spec);
        const Bytes first = in.bytes("first", Bytes{1} << 20);
        const Bytes cap = in.bytes("bytes", Bytes{25} << 20);
        in.finish();
        for (const auto& [name, value] : {std::pair{"first", first}, {"bytes", cap}})
          if (value < 1)
            throw ConfigError(fmt::format("ddp: {} must be at least 1, got {}", name, value));
        return fill_as_ddp(input.profile.params, first, cap);
      },
      "buckets as PyTorch's DDP fills them {bytes=25MiB, first=1MiB}");
}

}  // namespace thinwire
