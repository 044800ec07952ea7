// SPDX-License-Identifier: Apache-2.0
// Internal to comm: what one rank has produced and nobody has started yet; and a vector with a bit
// for each name that has a number.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/ready_cache.h"
#include "thinwire/comm/ready_coordinator.h"

namespace thinwire {

struct ReadyMark {
  ReadyName ready;
  std::int64_t order = 0;
  Deadline since{};
  bool sent = false;  ///< rank 0 knows of it
};

class ReadyMarks {
 public:
  /// False if it is there already.
  bool add(ReadyName ready);
  bool erase(const std::string& name) { return all_.erase(name) == 1; }
  bool contains(const std::string& name) const { return all_.contains(name); }
  int size() const { return static_cast<int>(all_.size()); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  /// Those that rank 0 does not know of and that have no number, in the order of add(); it does
  /// from here on.
  std::vector<ReadyName> take_new(const ReadyCache& cache);
  bool any_waits_for(Seconds seconds) const;
  std::vector<ReadyWaiting> waiting() const;
  /// ", waiting to start 'a', 'b', 'c' and 5 more"; empty if there is nothing.
  std::string in_words() const;

 private:
  std::vector<const ReadyMark*> in_order() const;
  std::unordered_map<std::string, ReadyMark> all_;
  std::int64_t next_ = 0;
};

/// In front of the names' bits stand four that say, inverted, that no rank has one of these flags:
/// one bit_and answers "all" for the names and "any" for the flags.
class ReadyBits {
 public:
  static constexpr std::int64_t kShutDown = 1, kNew = 2, kChanged = 4, kStalled = 8, kFlags = 15;
  static constexpr std::int64_t kFlagBits = 4;
  /// No flag, and no name ready.
  void reset(int numbers);
  void set_flags(std::int64_t flags) { words_[0] &= ~static_cast<std::uint64_t>(flags); }
  std::int64_t flags() const { return static_cast<std::int64_t>(~words_[0]) & kFlags; }
  void set(int number);
  bool has(int number) const;
  /// As bytes, so that many ranks can share the work on few words.
  Buffer buffer() {
    return {words_.data(), static_cast<std::int64_t>(words_.size() * sizeof words_[0]), DType::u8};
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace thinwire
