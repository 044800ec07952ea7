// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
namespace thinwire {
inline constexpr std::string_view kVersion = "0.1.0";
/// Of the bytes that codecs put on the wire; raised with any change to those of an existing codec.
/// tests/golden/payloads.json holds payloads of this format. Ranks of different formats do not
/// join.
inline constexpr int kPayloadFormat = 1;
/// What ranks compare when they join.
inline constexpr std::string_view kWireVersion = "0.1.0, payload format 1";
static_assert(kWireVersion.starts_with(kVersion) && kWireVersion.back() == '0' + kPayloadFormat);
}  // namespace thinwire
