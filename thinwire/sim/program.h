// SPDX-License-Identifier: Apache-2.0
// What a rank does in one step, in order: computation, and where exchanges start and are needed.
#pragma once
#include <cstdint>
#include <vector>

#include "thinwire/plan/plan.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

struct Action {
  enum What : std::uint8_t { compute, start, need, update } what = compute;
  OpKind op = OpKind::forward;  ///< compute: forward or backward
  int index = 0;                ///< tensor, or exchange
  int lag = 0;                  ///< need: of the firing so many steps ago
  Seconds seconds = 0;          ///< of the profile's machine: computing, encoding, decoding
};

/// What a rank's core spends on one firing of an exchange: of dense input at the speed measured for
/// its form; a form that was not measured takes no time. Where payloads do not add, each of the
/// group's is decoded.
struct CodecTime {
  Seconds encode_s = 0, decode_s = 0;
};
CodecTime codec_time(const Exchange& exchange, const Plan& plan, const Profile& profile);

/// In a step in which an exchange does not fire its actions are left out. ConfigError where the
/// profile has other tensors than the plan.
std::vector<Action> program_of(const Plan& plan, const Profile& profile);

}  // namespace thinwire
