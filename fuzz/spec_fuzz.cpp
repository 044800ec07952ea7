// SPDX-License-Identifier: Apache-2.0
// A spec string is refused as a ConfigError or prints back to itself; nothing else can happen.
#include <string_view>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto chain = thinwire::parse_chain(text);
    const auto printed = thinwire::to_string(chain);
    if (thinwire::parse_chain(printed) != chain ||
        thinwire::to_string(thinwire::parse_chain(printed)) != printed) {
      __builtin_trap();
    }
  } catch (const thinwire::ConfigError&) {
  }
  return 0;
}
