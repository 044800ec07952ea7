// SPDX-License-Identifier: Apache-2.0
// A plan file from outside is refused in words or read; what was read is written back and read as
// the same plan.
#include <cstdint>
#include <string_view>

#include "thinwire/core/error.h"
#include "thinwire/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire;
  try {
    const Plan plan = plan_from_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const Plan again = plan_from_json(to_json(plan), "fuzz");
    if (digest(again) != digest(plan) || !first_difference(plan, again).empty()) __builtin_trap();
    validate(plan, 3);
  } catch (const DataError&) {
  } catch (const ConfigError&) {
  }
  return 0;
}
