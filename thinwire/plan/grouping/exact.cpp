// SPDX-License-Identifier: Apache-2.0
// The optimum of the MG-WFBP cost model (Shi, Chu, Li, INFOCOM 2019,
// https://arxiv.org/abs/1811.11141) by dynamic programming; the published greedy merging is not
// always optimal.
//   done(0) = 0, tensors 1..L in backward order
//   done(j) = min over i < j of max(done(i), ready(j)) + a + b * bytes(i+1..j)
// where i+1..j is one message. A smaller done(i) never makes a later message end later, so the
// best of each prefix is enough. Of equal plans the one with the larger last message is taken.
// Several dtypes: i+1..j stands for one message a dtype, started when its last gradient is ready.
// Cost: O(L^2) time and O(L) memory where payloads are affine; otherwise L (L + 1) / 2 calls of
// payload(bucket).
#include <algorithm>
#include <limits>

#include "thinwire/core/spec.h"
#include "thinwire/plan/planners.h"

namespace thinwire {
namespace {

struct Item {
  int tensor = 0;
  DType dtype = DType::f32;
  double bytes = 0;
  Seconds ready = 0;
};

/// The messages of one stretch of tensors, one a dtype, in the order in which they become ready.
class Stretch {
 public:
  explicit Stretch(const GroupInput& input)
      : input_(input), cost_(all_reduce_cost(input.cluster)) {}

  void clear() { parts_.clear(); }
  void add(const Item& item) {
    Part& part = newest(item.dtype);
    part.ready = item.ready;
    part.bytes += item.bytes;
    if (input_.payload) {
      const auto count = elements(input_.profile.params[static_cast<std::size_t>(item.tensor)]);
      part.bucket.slices.push_back({item.tensor, 0, count});
      part.took = cost_(static_cast<double>(input_.payload(part.bucket)));
    } else {
      part.took =
          part.bytes > 0 ? cost_(input_.fixed_bytes + input_.bytes_per_byte * part.bytes) : 0;
    }
  }
  Seconds done(Seconds free_at) const {
    for (const auto& part : parts_) free_at = std::max(free_at, part.ready) + part.took;
    return free_at;
  }

 private:
  struct Part {
    DType dtype = DType::f32;
    Seconds ready = 0, took = 0;
    double bytes = 0;
    Bucket bucket;  // filled only where `payload` must be asked
  };
  /// The part of this dtype, moved to the end: it is ready last now.
  Part& newest(DType dtype) {
    if (!parts_.empty() && parts_.back().dtype == dtype) return parts_.back();
    const auto it = std::find_if(parts_.begin(), parts_.end(),
                                 [&](const Part& part) { return part.dtype == dtype; });
    if (it == parts_.end())
      parts_.push_back({.dtype = dtype});
    else
      std::rotate(it, it + 1, parts_.end());
    return parts_.back();
  }
  const GroupInput& input_;
  AffineCost cost_;
  std::vector<Part> parts_;
};

std::vector<Item> in_backward_order(const GroupInput& input) {
  const auto ready = slowest_ready_times(input);
  std::vector<Item> out;
  for (std::size_t tensor = ready.size(); tensor-- > 0;) {
    const auto& desc = input.profile.params[tensor];
    out.push_back({static_cast<int>(tensor), desc.dtype, static_cast<double>(dense_bytes(desc)),
                   ready[tensor]});
  }
  return out;
}

/// first[j]: the stretch that ends before j begins at first[j], both in backward order.
std::vector<int> best_stretches(const GroupInput& input) {
  const auto items = in_backward_order(input);
  std::vector<Seconds> done(items.size() + 1, std::numeric_limits<double>::infinity());
  std::vector<int> first(done.size(), 0);
  done[0] = 0;
  Stretch stretch(input);
  for (std::size_t i = 0; i < items.size(); ++i) {
    stretch.clear();
    for (std::size_t j = i; j < items.size(); ++j) {
      stretch.add(items[j]);
      const Seconds end = stretch.done(done[i]);
      if (end >= done[j + 1]) continue;
      done[j + 1] = end;
      first[j + 1] = static_cast<int>(i);
    }
  }
  return first;
}

/// The tensors [i, j) in backward order as one bucket a dtype, the one that is ready first in
/// front.
void append_buckets(int i, int j, const std::vector<TensorDesc>& params, Grouping& out) {
  std::vector<std::vector<int>> parts;
  const auto dtype = [&](int tensor) { return params[static_cast<std::size_t>(tensor)].dtype; };
  for (int at = i; at < j; ++at) {
    const int tensor = static_cast<int>(params.size()) - 1 - at;
    auto it = std::find_if(parts.begin(), parts.end(),
                           [&](const auto& part) { return dtype(part[0]) == dtype(tensor); });
    if (it == parts.end()) it = parts.emplace(it);
    it->push_back(tensor);
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  for (const auto& part : parts) out.push_back(whole_tensors(part, params));
}

Grouping plan_exactly(const GroupInput& input) {
  const auto first = best_stretches(input);
  std::vector<int> ends;
  for (int j = static_cast<int>(first.size()) - 1; j > 0; j = first[static_cast<std::size_t>(j)])
    ends.push_back(j);
  std::reverse(ends.begin(), ends.end());
  Grouping out;
  for (const int end : ends)
    append_buckets(first[static_cast<std::size_t>(end)], end, input.profile.params, out);
  return out;
}

}  // namespace

void register_exact(GroupRegistry& registry) {
  registry.add(
      "exact",
      [](const GroupInput& input, const Spec& spec) {
        SpecReader(spec).finish();
        return plan_exactly(input);
      },
      "the grouping with the shortest predicted step, by dynamic programming");
}

}  // namespace thinwire
