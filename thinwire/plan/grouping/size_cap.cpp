// SPDX-License-Identifier: Apache-2.0
// Buckets of at most `bytes`, filled in the order in which gradients become ready, without any
// measurement: what Horovod calls tensor fusion and PyTorch DDP calls bucketing. Sergeev, Del
// Balso, https://arxiv.org/abs/1802.05799 Bytes: all of them, in about total / bytes messages; a
// tensor above the cap is a message of its own.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

Grouping fill(const std::vector<TensorDesc>& params, Bytes cap) {
  return fill_backward(params, [cap](DType, Bytes has, Bytes next) { return has + next > cap; });
}

}  // namespace

void register_size_cap(GroupRegistry& registry) {
  registry.add(
      "size_cap",
      [](const GroupInput& input, const Spec& spec) {
        SpecReader in(spec);
        const Bytes cap = in.bytes("bytes", Bytes{1} << 20);
        in.finish();
        if (cap < 1)
          throw ConfigError(fmt::format("size_cap: bytes must be at least 1, got {}", cap));
        return fill(input.profile.params, cap);
      },
      "buckets of at most so many dense bytes, in backward order {bytes=1MiB}");
}

}  // namespace thinwire
