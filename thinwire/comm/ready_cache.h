// SPDX-License-Identifier: Apache-2.0
// Internal to comm: the names that ranks agree about by a bit each. Every rank makes the same calls
// in the same order, so that a name has the same bit number on all of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace thinwire {

/// What a rank says about something that is ready.
struct ReadyName {
  std::string name;
  std::string kind;            ///< what must be equal on all ranks: type and size, say
  std::int32_t exchange = -1;  ///< for reports; -1: none
};

/// At most `capacity` names; the one that was used longest ago makes room. A number stays that of
/// its name until the name goes, and is given again then.
class ReadyCache {
 public:
  explicit ReadyCache(int capacity) : capacity_(capacity) {}
  int size() const { return static_cast<int>(slots_.size()); }  ///< numbers in use: 0 to size()-1
  /// Nothing where the name has no number.
  std::optional<int> find(const std::string& name) const;
  const ReadyName& at(int number) const { return slot(number).ready; }
  void use(int number);
  /// Returns whether another name had to go for it. The name is not in the cache.
  bool insert(const ReadyName& ready);
  void erase(int number);

 private:
  struct Slot {
    ReadyName ready;
    std::int64_t used = -1;  ///< when it was used last; -1: the number is free
  };
  const Slot& slot(int number) const { return slots_[static_cast<std::size_t>(number)]; }

  const int capacity_;
  std::int64_t clock_ = 0;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, int> numbers_;
};

}  // namespace thinwire
