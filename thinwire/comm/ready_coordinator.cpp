// SPDX-License-Identifier: Apache-2.0
// Gathers are all_to_alls in which only rank 0 gets anything: every transport has them and compares
// them on all ranks.
#include "thinwire/comm/ready_coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

constexpr std::int64_t kRefused = std::int64_t{1}
                                  << 32;  ///< flag of an answer: the text is why not

void put_number(std::string& out, std::int32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_name(std::string& out, const ReadyName& ready) {
  put_number(out, static_cast<std::int32_t>(ready.name.size()));
  put_number(out, static_cast<std::int32_t>(ready.kind.size()));
  put_number(out, ready.exchange);
  out += ready.name;
  out += ready.kind;
}

std::string take_bytes(std::string_view& in, std::int64_t bytes) {
  if (bytes < 0 || bytes > static_cast<std::int64_t>(in.size()))
    throw DataError(fmt::format("readiness: {} bytes are announced in a list of which {} are left",
                                bytes, in.size()));
  std::string out(in.substr(0, static_cast<std::size_t>(bytes)));
  in.remove_prefix(static_cast<std::size_t>(bytes));
  return out;
}

std::int32_t take_number(std::string_view& in) {
  std::int32_t out = 0;
  std::memcpy(&out, take_bytes(in, sizeof out).data(), sizeof out);
  return out;
}

std::vector<ReadyName> names_in(std::string_view in) {
  std::vector<ReadyName> out;
  while (!in.empty()) {
    const std::int32_t name = take_number(in), kind = take_number(in), exchange = take_number(in);
    ReadyName& ready = out.emplace_back();
    ready.name = take_bytes(in, name);
    ready.kind = take_bytes(in, kind);
    ready.exchange = exchange;
  }
  return out;
}

std::string ranks_in_words(const std::vector<Rank>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

void ReadyCoordinator::start(const MessageId& id, std::int64_t flags,
                             std::span<const ReadyName> mine) {
  id_ = id;
  mine_.clear();
  for (const ReadyName& ready : mine) put_name(mine_, ready);
  head_[0] = static_cast<std::int64_t>(mine_.size());
  head_[1] = flags;
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const bool root = comm_.rank() == 0;
  heads_.assign(root ? 2 * ranks : 0, 0);
  in_counts_.assign(ranks, 0);
  in_counts_[0] = 2;
  out_counts_.assign(ranks, root ? 2 : 0);
  first_ =
      comm_.all_to_all(id_, {heads_.data(), static_cast<std::int64_t>(heads_.size()), DType::i64},
                       {head_, 2, DType::i64}, out_counts_, in_counts_);
}

/// What every rank has sent, on rank 0; nothing on the others.
std::vector<std::string> ReadyCoordinator::gather() {
  first_.wait();
  const auto ranks = static_cast<std::size_t>(comm_.size());
  in_counts_[0] = head_[0];
  for (std::size_t r = 0; r < ranks; ++r) out_counts_[r] = heads_.empty() ? 0 : heads_[2 * r];
  std::string all(static_cast<std::size_t>(
                      std::accumulate(out_counts_.begin(), out_counts_.end(), std::int64_t{0})),
                  '\0');
  comm_
      .all_to_all(id_, {all.data(), static_cast<std::int64_t>(all.size()), DType::u8},
                  {mine_.data(), head_[0], DType::u8}, out_counts_, in_counts_)
      .wait();
  std::vector<std::string> out;
  std::string_view rest = all;
  for (std::size_t r = 0; r < ranks && !heads_.empty(); ++r)
    out.push_back(take_bytes(rest, out_counts_[r]));
  return out;
}

/// Rank 0's text and flags, to all.
std::string ReadyCoordinator::broadcast(std::string text, std::int64_t& flags) {
  std::int64_t head[2] = {static_cast<std::int64_t>(text.size()), flags};
  comm_.broadcast(id_, {head, 2, DType::i64}, 0).wait();
  flags = head[1];
  text.resize(static_cast<std::size_t>(head[0]));
  comm_.broadcast(id_, {text.data(), head[0], DType::u8}, 0).wait();
  return text;
}

/// Returns why not, where this rank says something else about a name than another one.
std::string ReadyCoordinator::count(Rank from, const ReadyName& ready,
                                    std::vector<ReadyName>& complete) {
  const auto [found, fresh] = counted_.try_emplace(ready.name);
  Counted& one = found->second;
  if (fresh) {
    one.ready = ready;
    one.ranks.assign(static_cast<std::size_t>(comm_.size()), false);
  } else if (one.ready.kind != ready.kind) {
    const auto first = std::find(one.ranks.begin(), one.ranks.end(), true) - one.ranks.begin();
    return fmt::format(
        "readiness: '{}' must be the same on all ranks, got '{}' on rank {} and '{}' on rank {}",
        ready.name, one.ready.kind, first, ready.kind, from);
  }
  one.ranks[static_cast<std::size_t>(from)] = true;
  if (++one.count < comm_.size()) return {};
  complete.push_back(one.ready);
  counted_.erase(found);
  return {};
}

ReadyCoordinator::Answer ReadyCoordinator::finish() {
  const auto lists = gather();
  Answer out;
  std::string refusal;
  for (std::size_t r = 0; r < lists.size(); ++r) {
    out.flags |= heads_[2 * r + 1];
    for (const ReadyName& ready : names_in(lists[r]))
      if (refusal.empty()) refusal = count(static_cast<Rank>(r), ready, out.complete);
  }
  if (!refusal.empty()) out.flags |= kRefused;
  std::string text = refusal;
  if (refusal.empty())
    for (const ReadyName& ready : out.complete) put_name(text, ready);
  text = broadcast(std::move(text), out.flags);
  if (out.flags & kRefused) throw ConfigError(text);
  if (comm_.rank() != 0) out.complete = names_in(text);
  return out;
}

std::optional<ReadyCoordinator::Stall> ReadyCoordinator::stalled(const MessageId& id,
                                                                 std::span<const ReadyWaiting> mine,
                                                                 Seconds most_s) {
  std::vector<ReadyName> list;
  for (const ReadyWaiting& one : mine)
    list.push_back({one.ready.name, fmt::format("{:.6f}", one.waited_s), one.ready.exchange});
  start(id, 0, list);
  const auto lists = gather();
  const auto ready_everywhere = [&](const std::vector<Rank>& ranks) {
    return static_cast<int>(ranks.size()) == comm_.size();
  };
  struct Waiting {
    std::int32_t exchange = -1;
    Seconds longest_s = 0;
    std::vector<Rank> ready;
  };
  std::map<std::string, Waiting> all;
  for (std::size_t r = 0; r < lists.size(); ++r)
    for (const ReadyName& one : names_in(lists[r])) {
      Waiting& waiting = all[one.name];
      waiting.exchange = one.exchange;
      waiting.longest_s = std::max(waiting.longest_s, std::stod(one.kind));
      waiting.ready.push_back(static_cast<Rank>(r));
    }
  std::string text;
  std::vector<bool> at_fault(static_cast<std::size_t>(comm_.size()), false);
  const bool stalls = std::any_of(all.begin(), all.end(), [&](const auto& each) {
    return each.second.longest_s >= most_s && !ready_everywhere(each.second.ready);
  });
  for (const auto& [name, waiting] : all) {
    // What will be late next belongs to the picture; what has just come does not.
    if (!stalls || waiting.longest_s < most_s / 2) continue;
    std::vector<Rank> missing;
    for (Rank r = 0; r < comm_.size(); ++r)
      if (!std::binary_search(waiting.ready.begin(), waiting.ready.end(), r)) missing.push_back(r);
    if (missing.empty()) continue;
    for (const Rank r : missing) at_fault[static_cast<std::size_t>(r)] = true;
    const std::string exchange =
        waiting.exchange < 0 ? "" : fmt::format("exchange {}, ", waiting.exchange);
    text += fmt::format("{}{}step {}: '{}' has been ready on {} for {:.1f} s and is not on {}",
                        text.empty() ? "" : "; ", exchange, id.step, name,
                        ranks_in_words(waiting.ready), waiting.longest_s, ranks_in_words(missing));
  }
  std::int64_t rank = -1;
  if (std::count(at_fault.begin(), at_fault.end(), true) == 1)
    rank = std::find(at_fault.begin(), at_fault.end(), true) - at_fault.begin();
  text = broadcast(std::move(text), rank);
  if (text.empty()) return std::nullopt;
  return Stall{text, static_cast<Rank>(rank)};
}

}  // namespace thinwire
