// SPDX-License-Identifier: Apache-2.0
// What a decoder does to its output.
#pragma once
#include <cstdint>

namespace thinwire {

/// `set` writes every element, those that were not sent as zeros; `add` adds what was sent.
enum class Write : std::uint8_t { set, add };

}  // namespace thinwire
