// SPDX-License-Identifier: Apache-2.0
// How fast a form is on this machine: what plans count codec time with.
#pragma once
#include <span>
#include <vector>

#include "thinwire/core/spec.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// Dense bytes a second of one core, median of several runs on noise: encoding with all that
/// memories do, and decoding one payload of `ranks`: their mean is written, the rest of a sparse
/// one with zeros, and each has its share of that. `tensors` are those of one bucket, of one type.
/// Rounds after the first count as they do in an exchange, the wire apart. ConfigError where the
/// form cannot be made for these tensors. No messages.
CodecSpeed form_speed(const std::vector<Spec>& form, std::span<const TensorDesc> tensors,
                      int ranks);

}  // namespace thinwire
