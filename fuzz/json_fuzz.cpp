// SPDX-License-Identifier: Apache-2.0
// JSON from outside is refused as a DataError or read, whatever its depth and encoding.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/json_inl.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto json = thinwire::parse_json(text, "fuzz");
    if (thinwire::parse_json(json.dump(), "fuzz") != json) __builtin_trap();
    thinwire::get<std::vector<std::int64_t>>(json, "shape", "fuzz");
  } catch (const thinwire::DataError&) {
  }
  return 0;
}
