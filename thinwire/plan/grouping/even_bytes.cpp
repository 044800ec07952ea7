// SPDX-License-Identifier: Apache-2.0
// A number of messages of about equal bytes, in backward order: what is left to choose where
// neither layer times nor the link have been measured. Whole tensors; a message is closed once the
// bytes so far reach its share of the total. These are also the groups of Laanait and others
// ("Exascale Deep Learning for Scientific Inverse Problems", 2019,
// https://arxiv.org/abs/1909.11150), of which nothing is sent before all is ready: the list in
// backward order, cut into so many.
//   messages: at most `count` a dtype; bytes: all of them in every step
#include <fmt/format.h>

#include <map>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

struct Filled {
  double total = 0, before = 0;  ///< bytes: of all, and in messages that are closed
  std::int64_t closed = 0;       ///< shares reached so far
};

Grouping even(const GroupInput& input, std::int64_t count) {
  std::map<DType, Filled> filled;
  for (const TensorDesc& desc : input.profile.params)
    filled[desc.dtype].total += static_cast<double>(dense_bytes(desc));
  return fill_backward(input.profile.params, [&](DType dtype, Bytes has, Bytes) {
    Filled& one = filled[dtype];
    const double reached = one.before + static_cast<double>(has);
    if (reached < one.total * static_cast<double>(one.closed + 1) / static_cast<double>(count))
      return false;
    one.before = reached;
    // A large tensor takes the shares of several.
    one.closed = static_cast<std::int64_t>(reached / one.total * static_cast<double>(count));
    return true;
  });
}

}  // namespace

void register_even_bytes(GroupRegistry& registry) {
  registry.add(
      "even_bytes",
      [](const GroupInput& input, const Spec& spec) -> Grouped {
        SpecReader in(spec);
        const std::int64_t count = in.integer("count", 4);
        in.finish();
        if (count < 1)
          throw ConfigError(fmt::format("even_bytes: count must be at least 1, got {}", count));
        return even(input, count);
      },
      "so many messages of about equal bytes {count=4}");
}

}  // namespace thinwire
