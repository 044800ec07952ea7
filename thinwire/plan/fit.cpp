// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/fit.h"

#include <fmt/format.h>

#include <cmath>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

struct Line {
  double constant = 0, slope = 0;
};

/// Minimises the sum of ((constant + slope x) / y - 1)^2; with `constant` kept at 0 if it would be
/// less.
Line relative_line(const std::vector<TimedSize>& points) {
  double ww = 0, wx = 0, xx = 0, w = 0, x = 0;  // of weights 1 / y and x / y
  for (const TimedSize& one : points) {
    const double a = 1 / one.seconds, b = static_cast<double>(one.bytes) / one.seconds;
    ww += a * a;
    wx += a * b;
    xx += b * b;
    w += a;
    x += b;
  }
  const double determinant = ww * xx - wx * wx;
  if (determinant > 1e-12 * ww * xx) {
    const Line line{(w * xx - x * wx) / determinant, (ww * x - wx * w) / determinant};
    if (line.constant >= 0) return line;
  }
  return {0, xx > 0 ? x / xx : 0};
}

}  // namespace

LinkFit fit_link(const std::vector<TimedSize>& points) {
  if (points.size() < 2)
    throw ConfigError(fmt::format("a link needs two measured sizes, got {}", points.size()));
  for (const TimedSize& one : points)
    if (!(one.seconds > 0) || !std::isfinite(one.seconds) || one.bytes < 0)
      throw ConfigError(
          fmt::format("a collective of {} bytes must take time, got {} s", one.bytes, one.seconds));
  const Line line = relative_line(points);
  if (!(line.slope > 0))
    throw ConfigError("larger collectives do not take longer: no rate can be told");
  LinkFit out;
  out.link.latency_s = line.constant;
  out.link.bytes_per_s = 1 / line.slope;
  double squares = 0, cpu = 0, bytes = 0;
  for (const TimedSize& one : points) {
    const double fitted = line.constant + line.slope * static_cast<double>(one.bytes);
    squares += std::pow(fitted / one.seconds - 1, 2);
    cpu += one.cpu_s;
    bytes += static_cast<double>(one.bytes);
  }
  out.link.cpu_s_per_byte = bytes > 0 ? cpu / bytes : 0;
  out.residual = std::sqrt(squares / static_cast<double>(points.size()));
  return out;
}

}  // namespace thinwire
