// SPDX-License-Identifier: Apache-2.0
// The tables of transports and decorators, and the one way to make a communicator from text.
#include "thinwire/comm/transports.h"

namespace thinwire {

const Registry<CommFactory>& transports() {
  static const Registry<CommFactory> registry = [] {
    Registry<CommFactory> r("transport");
    register_local(r);
    register_tcp(r);
    return r;
  }();
  return registry;
}

const Registry<DecoratorFactory>& comm_decorators() {
  static const Registry<DecoratorFactory> registry = [] {
    Registry<DecoratorFactory> r("decorator of a transport");
    register_record(r);
    register_throttle(r);
    register_fault(r);
    return r;
  }();
  return registry;
}

std::unique_ptr<Comm> decorate(std::span<const Spec> chain, std::unique_ptr<Comm> comm) {
  for (auto spec = chain.rbegin(); spec != chain.rend(); ++spec)
    comm = comm_decorators().find(spec->name).make(*spec, std::move(comm));
  return comm;
}

std::unique_ptr<Comm> make_comm(std::string_view transport, const JoinOptions& join) {
  const auto chain = parse_chain(transport);
  const std::span decorators(chain.data(), chain.size() - 1);
  // All names are checked before anybody joins: a wrong one must not leave the others waiting.
  const auto& entry = transports().find(chain.back().name);
  for (const Spec& spec : decorators) comm_decorators().find(spec.name);
  return decorate(decorators, entry.make(chain.back(), join));
}

}  // namespace thinwire
