// SPDX-License-Identifier: Apache-2.0
// The tables of transports and decorators, and the one way to make a communicator from text.
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

// The adapter lies on the torch side, this table does not: it knows the name and asks for the rest.
void register_c10d_name(Registry<CommFactory>& registry) {
  registry.add(
      "c10d",
      [](const Spec& spec, const JoinOptions& join) {
        if (!c10d_factory())
          throw UnsupportedError(
              "c10d: this program has no torch side, or has not called register_c10d()");
        return c10d_factory()(spec, join);
      },
      "Gloo through PyTorch's c10d; for a process group of one's own see comm/c10d.h");
}

}  // namespace

CommFactory& c10d_factory() {
  static CommFactory factory;
  return factory;
}

const Registry<CommFactory>& transports() {
  static const Registry<CommFactory> registry = [] {
    Registry<CommFactory> r("transport");
    register_local(r);
    register_tcp(r);
    register_mpi(r);
    register_c10d_name(r);
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
