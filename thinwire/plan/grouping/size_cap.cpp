// SPDX-License-Identifier: Apache-2.0
// Buckets of at most `bytes`, filled in the order in which gradients become ready, without any
// measurement: what Horovod calls tensor fusion and PyTorch DDP calls bucketing. Sergeev, Del
// Balso, https://arxiv.org/abs/1802.05799 Bytes: all of them, in about total / bytes messages; a
// tensor above the cap is a message of its own.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

struct OpenBucket {
  std::vector<int> tensors;
  Bytes bytes = 0;
};

Grouping fill(const std::vector<TensorDesc>& params, Bytes cap) {
  std::map<DType, OpenBucket> open;
  std::vector<std::vector<int>> closed;
  const auto close = [&](OpenBucket& bucket) {
    if (!bucket.tensors.empty()) closed.push_back(std::move(bucket.tensors));
    bucket = {};
  };
  for (int tensor = static_cast<int>(params.size()); tensor-- > 0;) {
    const auto& desc = params[static_cast<std::size_t>(tensor)];
    OpenBucket& bucket = open[desc.dtype];
    if (bucket.bytes + dense_bytes(desc) > cap) close(bucket);
    bucket.tensors.push_back(tensor);
    bucket.bytes += dense_bytes(desc);
  }
  for (auto& [dtype, bucket] : open) close(bucket);
  // Ready first, started first: a bucket is ready when the last of its tensors is, the one with the
  // smallest number.
  std::sort(closed.begin(), closed.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  Grouping out;
  for (const auto& tensors : closed) out.push_back(whole_tensors(tensors, params));
  return out;
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
