// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/experiments.h"

namespace thinwire {

#define TW_EXPERIMENT(name, text) extern const std::string_view text;
#include "builtin_experiments.inc"
#undef TW_EXPERIMENT

namespace {

// Views of constants in another source: copied when first asked for, when those exist.
std::span<const BuiltInExperiment> all() {
#define TW_EXPERIMENT(name, text) {name, text},
  static const BuiltInExperiment experiments[] = {
#include "builtin_experiments.inc"
  };
#undef TW_EXPERIMENT
  return experiments;
}

}  // namespace

std::span<const BuiltInExperiment> built_in_experiments() { return all(); }

}  // namespace thinwire
