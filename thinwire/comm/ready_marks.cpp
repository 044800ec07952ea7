// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/ready_marks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace thinwire {
namespace {

constexpr std::size_t kNamesInWords = 3;

Seconds since(Deadline then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

bool ReadyMarks::add(ReadyName ready) {
  const std::string name = ready.name;
  return all_.try_emplace(name, ReadyMark{std::move(ready), next_++, Clock::now()}).second;
}

std::vector<const ReadyMark*> ReadyMarks::in_order() const {
  std::vector<const ReadyMark*> out;
  out.reserve(all_.size());
  for (const auto& [name, mark] : all_) out.push_back(&mark);
  std::sort(out.begin(), out.end(),
            [](const ReadyMark* a, const ReadyMark* b) { return a->order < b->order; });
  return out;
}

std::vector<ReadyName> ReadyMarks::take_new(const ReadyCache& cache) {
  std::vector<ReadyName> out;
  for (const ReadyMark* mark : in_order())
    if (!mark->sent && !cache.find(mark->ready.name)) out.push_back(mark->ready);
  for (const ReadyName& ready : out) all_.at(ready.name).sent = true;
  return out;
}

bool ReadyMarks::any_waits_for(Seconds seconds) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const auto& each) { return since(each.second.since) >= seconds; });
}

std::vector<ReadyWaiting> ReadyMarks::waiting() const {
  std::vector<ReadyWaiting> out;
  for (const ReadyMark* mark : in_order()) out.push_back({mark->ready, since(mark->since)});
  return out;
}

std::string ReadyMarks::in_words() const {
  if (all_.empty()) return {};
  std::vector<std::string> names;
  for (const ReadyMark* mark : in_order()) names.push_back("'" + mark->ready.name + "'");
  const std::size_t more = names.size() - std::min(names.size(), kNamesInWords);
  names.resize(names.size() - more);
  return fmt::format(", waiting to start {}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

void ReadyBits::reset(int numbers) {
  words_.assign(static_cast<std::size_t>((kFlagBits + numbers + 63) / 64), 0);
  words_[0] = kFlags;
}

void ReadyBits::set(int number) {
  const auto at = static_cast<std::size_t>(number + kFlagBits);
  words_[at / 64] |= std::uint64_t{1} << (at % 64);
}

bool ReadyBits::has(int number) const {
  const auto at = static_cast<std::size_t>(number + kFlagBits);
  return ((words_[at / 64] >> (at % 64)) & 1) != 0;
}

}  // namespace thinwire
