// SPDX-License-Identifier: Apache-2.0
// Speeds of forms that were measured on this machine, kept in a file, so that plan=auto need not
// measure them at every start. No torch.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "thinwire/plan/profile.h"

namespace thinwire {

/// The folder of what can be had again: thinwire in XDG_CACHE_HOME, else in ~/.cache.
std::string cache_folder();

/// What a measurement depends on: this library, the processor, the form, the matrix, the ranks.
std::string speed_key(std::string_view form, std::int64_t side, int ranks);

/// One process at a time adds: rank 0. A file that cannot be read counts as empty, one that cannot
/// be written is left alone: what is not there is measured.
class SpeedCache {
 public:
  explicit SpeedCache(std::string path = cache_folder() + "/forms.json");
  /// Nothing where it was measured over a week ago. `today`: days since 1970.
  std::optional<CodecSpeed> find(const std::string& key, std::int64_t today) const;
  void add(const std::string& key, const CodecSpeed& speed, std::int64_t today) const;

 private:
  std::string path_;
};
std::int64_t days_since_1970();

}  // namespace thinwire
