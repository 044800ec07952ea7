// SPDX-License-Identifier: Apache-2.0
// The files of experiments/, compiled in at build time (CMakeLists.txt), so that the tool needs
// nothing installed.
#pragma once
#include <span>
#include <string_view>

namespace thinwire {

struct BuiltInExperiment {
  std::string_view name, text;
};
std::span<const BuiltInExperiment> built_in_experiments();

}  // namespace thinwire
