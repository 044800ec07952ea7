// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/kernels/select_wide.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

constexpr std::size_t kChunk = kStreams * kPage;  // elements between two looks at the room
constexpr std::size_t kOverrun = 16;    // what vector code writes beyond the last candidate
constexpr std::size_t kSampled = 1024;  // places of a sample, kRun elements (a cache line) each
constexpr std::size_t kRun = 16;
constexpr std::size_t kAhead = 32;  // elements asked for before they are needed, each in its line
constexpr std::size_t kBins = 4096;
constexpr int kBinShift = 12;  // 4096 bins of 2^12 are two powers of two of magnitude

std::int32_t magnitude(float x) { return std::bit_cast<std::int32_t>(x) & 0x7fffffff; }

std::size_t collect(const Collect& job) {
  switch (simd()) {
    case Simd::avx512:
      return collect_avx512(job);
    case Simd::avx2:
      return collect_avx2(job);
    default:
      return collect_plain(job);
  }
}

void check_length(std::size_t n) {
  TW_ASSERT(n, <=, std::size_t{std::numeric_limits<std::uint32_t>::max()});
}

/// The bound for |x| >= threshold in Collect's terms.
std::int32_t bound_of(float threshold) {
  TW_ASSERT(threshold, >=, 0.0F);
  return magnitude(threshold) - 1;
}

/// Appends chunk by chunk, so that the room grows with what is found.
void collect_all(float* memory, const float* x, std::size_t n, std::int32_t above, Selection& out) {
  check_length(n);
  std::size_t found = 0;
  for (std::size_t at = 0; at < n; at += kChunk) {
    const std::size_t count = std::min(kChunk, n - at);
    if (const std::size_t room = found + count + kOverrun; out.indices.size() < room) {
      out.indices.resize(2 * room);
      out.values.resize(2 * room);
    }
    found += collect({.memory = memory == nullptr ? nullptr : memory + at,
                      .x = x + at,
                      .count = count,
                      .base = static_cast<std::uint32_t>(at),
                      .above = above,
                      .indices = out.indices.data() + found,
                      .values = out.values.data() + found});
  }
  out.indices.resize(found);
  out.values.resize(found);
}

}  // namespace

void TopK::select(std::span<const float> x, std::int64_t k, Selection& out) {
  run(nullptr, x.data(), x.size(), static_cast<std::size_t>(std::max<std::int64_t>(k, 0)), out);
}

void TopK::accumulate(std::span<float> memory, std::span<const float> x, std::int64_t k,
                      Selection& out) {
  TW_ASSERT(memory.size(), ==, x.size());
  run(memory.data(), x.data(), x.size(), static_cast<std::size_t>(std::max<std::int64_t>(k, 0)),
      out);
}

void TopK::take(std::span<float> memory, std::span<const float> x, std::int64_t k, Selection& out) {
  TW_ASSERT(memory.size(), ==, x.size());
  taken_from_ = memory.data();
  run(memory.data(), x.data(), x.size(), static_cast<std::size_t>(std::max<std::int64_t>(k, 0)),
      out);
  taken_from_ = nullptr;
}

void TopK::give_back(std::span<const std::uint32_t> indices, std::span<const float> values) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + kAhead < indices.size()) __builtin_prefetch(taken_from_ + indices[i + kAhead], 1);
    taken_from_[indices[i]] = values[i];
  }
}

void TopK::run(float* memory, const float* x, std::size_t n, std::size_t k, Selection& out) {
  check_length(n);
  k = std::min(k, n);
  const std::size_t room = std::min(n, 2 * k + 4 * kChunk) + kChunk + kOverrun;
  if (candidates_.indices.size() < room) {
    candidates_.indices.resize(room);
    candidates_.values.resize(room);
  }
  stream(memory, x, n, k, sampled_bound(memory, x, n, k));
  if (candidates_.count < k) {  // the sample promised too much: once more, from what there is now
    if (taken_from_ != nullptr)
      give_back({candidates_.indices.data(), candidates_.count},
                {candidates_.values.data(), candidates_.count});
    float* const again = std::exchange(taken_from_, nullptr);
    stream(nullptr, memory == nullptr ? x : memory, n, k, -1);
    keep_largest(k);
    if (again != nullptr) zero_at({again, n}, {candidates_.indices.data(), k});
  }
  keep_largest(k);
  out.indices.assign(candidates_.indices.begin(),
                     candidates_.indices.begin() + static_cast<std::ptrdiff_t>(k));
  out.values.assign(candidates_.values.begin(),
                    candidates_.values.begin() + static_cast<std::ptrdiff_t>(k));
}

void TopK::stream(float* memory, const float* x, std::size_t n, std::size_t k, std::int32_t above) {
  candidates_.count = 0;
  low_ = std::max(above, 0);
  for (std::size_t at = 0; at < n; at += kChunk) {
    const std::size_t count = std::min(kChunk, n - at);
    // What comes later loses against an equal magnitude here, so the next must be greater.
    if (candidates_.count + count + kOverrun > candidates_.indices.size())
      low_ = above = std::max(above, keep_largest(k));
    candidates_.count += collect({.memory = memory == nullptr ? nullptr : memory + at,
                                  .x = x + at,
                                  .count = count,
                                  .base = static_cast<std::uint32_t>(at),
                                  .above = above,
                                  .indices = candidates_.indices.data() + candidates_.count,
                                  .values = candidates_.values.data() + candidates_.count,
                                  .takes = taken_from_ != nullptr});
  }
}

/// A bound that slightly more than k elements are above, or -1: none.
std::int32_t TopK::sampled_bound(const float* memory, const float* x, std::size_t n,
                                 std::size_t k) {
  constexpr std::size_t kSample = kSampled * kRun;
  if (n < 4 * kSample || k == 0) return -1;
  const double expected = static_cast<double>(k) * kSample / static_cast<double>(n);
  const double wanted = expected + 4 * std::sqrt(expected) + 4;  // four deviations more
  if (wanted >= kSample) return -1;
  scratch_.clear();
  const std::size_t stride = n / kSampled;
  for (std::size_t place = 0; place < kSampled; ++place) {
    // Not at the same place of every stride, which might be that of one column of a matrix.
    const std::size_t shift = place * 2654435761U % (stride - kRun + 1);
    const std::size_t begin = place * stride + shift;
    for (std::size_t i = begin; i < begin + kRun; ++i)
      scratch_.push_back(magnitude(memory == nullptr ? x[i] : memory[i] + x[i]));
  }
  const auto at = scratch_.begin() + static_cast<std::ptrdiff_t>(wanted);
  std::nth_element(scratch_.begin(), at, scratch_.end(), std::greater<>());
  return *at - 1;
}

/// The k-th largest magnitude of the candidates, which are more than k > 0; `ties`: how many of
/// that magnitude are among the k.
std::int32_t TopK::smallest_of_largest(std::size_t k, std::size_t& ties) {
  const float* values = candidates_.values.data();
  const std::size_t count = candidates_.count;
  // Bins count from the bound, which all candidates are above, up to four times it; greater ones
  // are in the last bin. Without a bound they share the range of the candidates.
  std::int32_t low = low_;
  int shift = kBinShift;
  if (low == 0 && count > 0) {
    std::int32_t high = 0;
    low = std::numeric_limits<std::int32_t>::max();
    for (std::size_t i = 0; i < count; ++i) {
      low = std::min(low, magnitude(values[i]));
      high = std::max(high, magnitude(values[i]));
    }
    for (shift = 0; static_cast<std::size_t>(high - low) >> shift >= kBins;) ++shift;
  }
  const auto bin_of = [low, shift](float value) {
    const auto beyond = static_cast<std::size_t>(magnitude(value) - low) >> shift;
    return std::min(beyond, kBins - 1);
  };
  std::uint32_t bins[kBins] = {};
  for (std::size_t i = 0; i < count; ++i) ++bins[bin_of(values[i])];
  std::size_t greater = 0, bin = kBins - 1;
  for (; greater + bins[bin] < k; --bin) greater += bins[bin];
  scratch_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (bin_of(values[i]) == bin) scratch_.push_back(magnitude(values[i]));
  }
  const auto at = scratch_.begin() + static_cast<std::ptrdiff_t>(k - greater - 1);
  std::nth_element(scratch_.begin(), at, scratch_.end(), std::greater<>());
  const std::int32_t kth = *at;
  // Those before `at` are no smaller; the others of the bin no greater.
  const auto above = static_cast<std::size_t>(
      std::count_if(scratch_.begin(), at, [&](std::int32_t each) { return each > kth; }));
  ties = k - greater - above;
  return kth;
}

/// Reduces the candidates to their k largest and returns the smallest magnitude of those.
std::int32_t TopK::keep_largest(std::size_t k) {
  std::size_t ties = 0, kept = 0;
  if (k == 0) {
    if (taken_from_ != nullptr)
      give_back({candidates_.indices.data(), candidates_.count},
                {candidates_.values.data(), candidates_.count});
    candidates_.count = 0;
    return std::numeric_limits<std::int32_t>::max();
  }
  if (candidates_.count <= k) return -1;
  const std::int32_t kth = smallest_of_largest(k, ties);
  rejected_.indices.resize(candidates_.count - k + 1);
  rejected_.values.resize(candidates_.count - k + 1);
  for (std::size_t i = 0; i < candidates_.count; ++i) {
    const std::uint32_t index = candidates_.indices[i];
    const float value = candidates_.values[i];
    const std::int32_t each = magnitude(value);
    const bool tie = each == kth && ties > 0, keep = tie || each > kth;
    // Both are written, and what is wrong is written over: no branch that cannot be foreseen.
    rejected_.indices[i - kept] = index;
    rejected_.values[i - kept] = value;
    candidates_.indices[kept] = index;
    candidates_.values[kept] = value;
    ties -= tie;
    kept += keep;
  }
  if (taken_from_ != nullptr)
    give_back({rejected_.indices.data(), candidates_.count - k},
              {rejected_.values.data(), candidates_.count - k});
  candidates_.count = kept;
  return kth;
}

void select_at_least(std::span<const float> x, float threshold, Selection& out) {
  collect_all(nullptr, x.data(), x.size(), bound_of(threshold), out);
}

void accumulate_at_least(std::span<float> memory, std::span<const float> x, float threshold,
                         Selection& out) {
  TW_ASSERT(memory.size(), ==, x.size());
  collect_all(memory.data(), x.data(), x.size(), bound_of(threshold), out);
}

std::int64_t count_at_least(std::span<const float> x, float threshold) {
  const std::int32_t above = bound_of(threshold);
  if (simd() != Simd::scalar)
    return static_cast<std::int64_t>(count_above_avx2(x.data(), x.size(), above));
  return std::count_if(x.begin(), x.end(), [&](float each) { return magnitude(each) > above; });
}

void zero_at(std::span<float> x, std::span<const std::uint32_t> indices) {
  std::size_t i = 0;
  for (; i + kAhead < indices.size(); ++i) {
    __builtin_prefetch(&x[indices[i + kAhead]], 1);
    x[indices[i]] = 0;
  }
  for (; i < indices.size(); ++i) x[indices[i]] = 0;
}

void decode_sparse(std::span<const std::uint32_t> indices, std::span<const float> values,
                   std::span<float> out, Write mode) {
  if (indices.size() != values.size())
    throw DataError(
        fmt::format("sparse payload: as many values as indices are wanted, got {} and {}",
                    values.size(), indices.size()));
  std::uint32_t last = 0;
  for (const std::uint32_t i : indices) last = std::max(last, i);
  if (!indices.empty() && last >= out.size())
    throw DataError(
        fmt::format("sparse payload: indices must be below {}, got {}", out.size(), last));
  if (mode == Write::set) {
    std::fill(out.begin(), out.end(), 0.0F);
    for (std::size_t i = 0; i < indices.size(); ++i) out[indices[i]] = values[i];
  } else {
    for (std::size_t i = 0; i < indices.size(); ++i) out[indices[i]] += values[i];
  }
}

namespace reference {

void select_largest(std::span<const float> x, std::int64_t k, Selection& out) {
  std::vector<std::uint32_t> order(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return magnitude(x[a]) > magnitude(x[b]);
  });
  order.resize(std::min(x.size(), static_cast<std::size_t>(std::max<std::int64_t>(k, 0))));
  std::sort(order.begin(), order.end());
  out.indices = order;
  out.values.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) out.values[i] = x[order[i]];
}

void select_at_least(std::span<const float> x, float threshold, Selection& out) {
  out.indices.clear();
  out.values.clear();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::fabs(x[i]) >= threshold) {
      out.indices.push_back(static_cast<std::uint32_t>(i));
      out.values.push_back(x[i]);
    }
  }
}

}  // namespace reference

}  // namespace thinwire::kernels
