// SPDX-License-Identifier: Apache-2.0
// From measured times of a collective to the line that plans count with.
#pragma once
#include <vector>

#include "thinwire/plan/cluster.h"

namespace thinwire {

/// One size: the median time of calls, and what they cost a rank's core.
struct TimedSize {
  Bytes bytes = 0;
  Seconds seconds = 0, cpu_s = 0;
};

struct LinkFit {
  Link link;
  /// The root mean square of (fitted - measured) / measured: how far the line is from the points.
  double residual = 0;
};
/// Least squares of latency_s + bytes / bytes_per_s, and of the CPU seconds a byte, by relative
/// error, so that small sizes count as much as large ones; a latency below nothing is none.
/// ConfigError for fewer than two sizes, and where no rate is above 0.
LinkFit fit_link(const std::vector<TimedSize>& points);

}  // namespace thinwire
