// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/context.h"

#include "thinwire/comm/membership.h"

namespace thinwire {

Context init(std::string_view transport) {
  const auto launch = launch_environment();
  const JoinOptions join = launch ? launch->join : JoinOptions{};
  if (transport.empty()) transport = join.size > 1 ? "tcp" : "none";
  return Context(make_comm(transport, join));
}

}  // namespace thinwire
