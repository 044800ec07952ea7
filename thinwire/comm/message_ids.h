// SPDX-License-Identifier: Apache-2.0
// Ids of calls outside every plan that have words of their own in errors (MessageId::exchange).
#pragma once
#include <cstdint>

namespace thinwire {

/// The ranks agree on what has changed in their models.
constexpr std::int32_t kAgreement = -2;
/// The ranks agree on what is ready on all of them.
constexpr std::int32_t kReadiness = -3;

}  // namespace thinwire
