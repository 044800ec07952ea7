// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/context.h"

#include "thinwire/comm/c10d.h"

namespace thinwire {

std::optional<LaunchEnvironment> find_launch(Seconds timeout_s) {
  auto launch = launch_environment();
  if (launch && timeout_s > 0) launch->join.timeout_s = timeout_s;
  if (launch && launch->join.address.empty() && !launch->store_host.empty()) {
    const JoinOptions& join = launch->join;
    launch->join.publish =
        publish_through_store(launch->store_host, launch->store_port, "thinwire/" + join.run_id,
                              join.rank, join.timeout_s);
  }
  return launch;
}

Context init(std::string_view transport) {
  register_c10d();
  const auto launch = find_launch();
  const JoinOptions join = launch ? launch->join : JoinOptions{};
  if (transport.empty()) transport = join.size > 1 ? "tcp" : "none";
  return Context(make_comm(transport, join));
}

}  // namespace thinwire
