// SPDX-License-Identifier: Apache-2.0
// Which ranks of a group share a host: as the group's topology says (hierarchical{size=4}: fours in
// the order of ranks, the last perhaps fewer), else as their hosts are called.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/exchange/call.h"

namespace thinwire {

std::unique_ptr<Hosts> make_hosts(Comm* group, const Group& planned,
                                  const std::vector<std::string>& names) {
  std::vector<int> host_of;
  std::vector<std::string> seen;
  if (planned.topology.name == "hierarchical") {
    SpecReader reader(planned.topology);
    const std::int64_t size = reader.integer("size", 1);
    reader.finish();
    if (size < 1)
      throw ConfigError(fmt::format("hierarchical: size must be at least 1, got {}", size));
    for (std::size_t i = 0; i < planned.ranks.size(); ++i)
      host_of.push_back(static_cast<int>(static_cast<std::int64_t>(i) / size));
  } else {
    for (const Rank rank : planned.ranks) {
      const std::string& name = names[static_cast<std::size_t>(rank)];
      const auto found = std::find(seen.begin(), seen.end(), name);
      host_of.push_back(static_cast<int>(found - seen.begin()));
      if (found == seen.end()) seen.push_back(name);
    }
  }
  if (group == nullptr) return nullptr;
  auto out = std::make_unique<Hosts>();
  out->sizes.assign(static_cast<std::size_t>(*std::max_element(host_of.begin(), host_of.end())) + 1,
                    0);
  for (const int host : host_of) ++out->sizes[static_cast<std::size_t>(host)];
  std::vector<int> next;
  for (int host = 0; host < out->count(); ++host) next.push_back(out->begin(host));
  for (const int host : host_of) out->row_of.push_back(next[static_cast<std::size_t>(host)]++);
  out->host = host_of[static_cast<std::size_t>(group->rank())];
  out->inside = group->split(out->host, group->rank());
  out->between = group->split(out->inside->rank() == 0 ? 0 : -1, out->host);
  return out;
}

}  // namespace thinwire
