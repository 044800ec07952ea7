// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/measure_cluster.h"

#include <algorithm>

#include "thinwire/comm/timing.h"

namespace thinwire {
namespace {

constexpr Bytes kSmallest = 4096, kAtLeast = 1 << 20;  // a rate shows only beyond the start-ups
constexpr Seconds kLongest = 0.1, kEach = 0.1;

}  // namespace

MeasuredCluster measure_cluster(Comm& world, Bytes largest) {
  MeasuredCluster out;
  out.cluster.ranks_per_level = {world.size()};
  if (world.size() == 1) return out;
  const auto own = world.split(0, world.rank());
  CommTiming timing(*own);
  for (const auto& [name, kind] : {std::pair{"all_reduce", TimedCall::all_reduce},
                                   std::pair{"gather", TimedCall::all_gather}}) {
    std::vector<TimedSize>& points = out.points[name];
    for (Bytes bytes = kSmallest; points.size() < 2 || bytes <= std::max(largest, kAtLeast);
         bytes *= 4) {
      const CommFigures figures = timing.measure(bytes, kEach, kind);
      const double calls = figures.calls * static_cast<double>(figures.time.size());
      points.push_back({bytes, figures.median(), figures.cpu_s / (calls * world.size())});
      if (points.size() >= 2 && figures.median() > kLongest) break;
    }
    const LinkFit fit = fit_link(points);
    out.cluster.links[name] = {fit.link};
    out.residual[name] = fit.residual;
  }
  return out;
}

}  // namespace thinwire
