// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other about a step beside gradients: the step header, sample counts, and the
// reports made of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"
#include "thinwire/train/gradient_sync_impl.h"

namespace thinwire {
namespace {

constexpr std::int32_t kCountsPart = 1;

}  // namespace

void GradientSync::Impl::send_header() {
  Comm& group = exchanger->group(0);
  std::int64_t* mine = header_of(group.rank());
  std::fill(mine, mine + header_words, 0);
  mine[0] = step;
  mine[1] = static_cast<std::int64_t>(sequence);
  mine[2] = excused ? kExcused : 0;
  mine[3] = counts_stated ? counts[static_cast<std::size_t>(group.rank())] : -1;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::int64_t bit = std::int64_t{1} << (i % 64);
    if (trained[i].touched) mine[kFixedWords + i / 64] |= bit;
    if (trained[i].late.defined()) mine[kFixedWords + bit_words + i / 64] |= bit;
    if (trained[i].not_finite > 0) mine[2] |= kNotFinite;
  }
  const auto words = static_cast<std::int64_t>(header_words);
  header_handle =
      group.all_gather({header_id, step, 0}, {headers.data(), words * group.size(), DType::i64, -1},
                       {mine, words, DType::i64, -1});
}

void GradientSync::Impl::check_header() const {
  const std::int64_t* first = header_of(0);
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::int64_t* other = header_of(rank);
    if (other[0] != first[0])
      throw CommError(fmt::format("ranks are at different steps: rank 0 at {}, rank {} at {}",
                                  first[0], rank, other[0]));
    if (other[1] != first[1])
      throw CommError(fmt::format(
          "step {}: rank {} has called other exchanges than rank 0 (sequence {:016x} against "
          "{:016x})",
          step, rank, static_cast<std::uint64_t>(other[1]), static_cast<std::uint64_t>(first[1])));
  }
}

/// One report on every rank, again only where other ranks are concerned than in the step before.
void GradientSync::Impl::report_not_finite() {
  std::uint64_t ranks = 0;
  for (int rank = 0; rank < world.size(); ++rank)
    if (has_flag(rank, kNotFinite)) ranks = hash_bytes(&rank, sizeof rank, ranks + 1);
  const bool same = ranks == not_finite_on;
  not_finite_on = ranks;
  if (ranks == 0 || same) return;
  constexpr int kNamed = 8;
  std::string mine;
  int more = 0;
  for (const Trained& one : trained) {
    if (one.not_finite == 0) continue;
    if (mine.size() > 0 && std::count(mine.begin(), mine.end(), '\n') >= kNamed - 1)
      ++more;
    else
      mine += fmt::format("{}'{}' ({} of {} values)", mine.empty() ? "" : "\n", one.name,
                          one.not_finite, one.tensor.numel() * (one.tensor.is_complex() ? 2 : 1));
  }
  if (more > 0) mine += fmt::format("\nand {} parameters more", more);
  const auto all = world.membership()->all_gather(
      fmt::format("gradients of step {} that are not finite", step), mine);
  std::string text = fmt::format("step {}: gradients are not finite:", step);
  const char* separator = " ";
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    text +=
        fmt::format("{}on rank {} {}", separator, rank, fmt::join(split(all[rank], '\n'), ", "));
    separator = "; ";
  }
  if (skips) text += "; the step does not count";
  options.notice(text);
}

bool GradientSync::Impl::used_anywhere(int index) const {
  for (int rank = 0; rank < world.size(); ++rank)
    if (used(rank, index)) return true;
  return false;
}

/// One report for each set of parameters and ranks that do not use them.
void GradientSync::Impl::report_unused() {
  const int ranks = world.size();
  std::uint64_t key = 0;
  bool any = false;
  for (int i = 0; i < static_cast<int>(trained.size()); ++i)
    for (int rank = 0; rank < ranks; ++rank)
      if (!used(rank, i) && !has_flag(rank, kExcused)) {
        const std::int64_t where[2] = {i, rank};
        key = hash_bytes(where, sizeof where, key);
        any = true;
      }
  if (!any || !reported.insert(key).second) return;
  std::map<std::vector<int>, std::vector<std::string>> by_ranks;
  for (int i = 0; i < static_cast<int>(trained.size()); ++i) {
    std::vector<int> without;
    for (int rank = 0; rank < ranks; ++rank)
      if (!used(rank, i) && !has_flag(rank, kExcused)) without.push_back(rank);
    if (!without.empty())
      by_ranks[without].push_back("'" + trained[static_cast<std::size_t>(i)].name + "'");
  }
  std::string text = fmt::format("step {}: parameters took no part in the backward:", step);
  const char* separator = " ";
  for (const auto& [without, names] : by_ranks) {
    text += fmt::format("{}{} on ranks {}", separator, fmt::join(names, ", "),
                        fmt::join(without, ", "));
    separator = "; ";
  }
  options.notice(text);
}

void GradientSync::Impl::state_samples(std::int64_t samples) {
  if (samples < 0) throw ConfigError(fmt::format("samples must be at least 0, got {}", samples));
  if (!broken.empty()) throw CommError(broken);
  counts_handle.wait();
  weight_now.reset();
  counts_stated = true;
  auto& mine = counts[static_cast<std::size_t>(world.rank())];
  mine = samples;
  if (alone) return;
  Comm& group = exchanger->group(0);
  counts_handle =
      group.all_gather({-1, step, kCountsPart}, {counts.data(), group.size(), DType::i64, -1},
                       {&mine, 1, DType::i64, -1});
  sequence = hash_bytes(&step, sizeof step, sequence + 2);
}

std::int64_t GradientSync::Impl::total_samples() {
  if (!counts_stated) return -1;
  try {
    counts_handle.wait();
  } catch (const CommError& error) {
    throw CommError(fmt::format("sample counts of step {}: {}", step, error.what()));
  }
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

/// What this rank's contribution is scaled by before the plain mean; 1 where all counts are equal.
double GradientSync::Impl::weight() {
  if (weight_now) return *weight_now;
  const std::int64_t total = total_samples();
  const std::int64_t mine = counts[static_cast<std::size_t>(world.rank())];
  const bool equal =
      std::all_of(counts.begin(), counts.end(), [&](std::int64_t c) { return c == counts[0]; });
  weight_now = total <= 0 || equal
                   ? 1.0
                   : static_cast<double>(mine) * world.size() / static_cast<double>(total);
  return *weight_now;
}

}  // namespace thinwire
