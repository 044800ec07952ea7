// SPDX-License-Identifier: Apache-2.0
#include "thinwire/strategy/strategy.h"

namespace thinwire {

#define TW_PLUGIN(name) void register_##name(StrategyRegistry& registry);
#include "builtin_strategy.inc"
#undef TW_PLUGIN

namespace {

StrategyRegistry& all_strategies() {
  static StrategyRegistry registry = [] {
    StrategyRegistry out("strategy");
#define TW_PLUGIN(name) register_##name(out);
#include "builtin_strategy.inc"
#undef TW_PLUGIN
    return out;
  }();
  return registry;
}

}  // namespace

const StrategyRegistry& strategies() { return all_strategies(); }

void add_strategy(std::string name, StrategyFactory make, std::string help) {
  all_strategies().add(std::move(name), std::move(make), std::move(help));
}

std::unique_ptr<Strategy> make_strategy(std::string_view spec) {
  const Spec parsed = parse_spec(spec);
  return strategies().find(parsed.name).make(parsed);
}

void Strategy::visit_state(StateVisitor&) {}

}  // namespace thinwire
