// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/speed_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "thinwire/core/json.h"
#include "thinwire/core/version.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kDaysKept = 7;

Json read_speeds(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Json::object();
  try {
    Json out = parse_json(read_text(path), path);
    return out.is_object() ? out : Json::object();
  } catch (const std::exception&) {
    return Json::object();
  }
}

/// As the system names it; empty where it does not.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 1);
  return {};
}

}  // namespace

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::string(cache) + "/thinwire";
  const char* home = std::getenv("HOME");
  return std::string(home && *home ? home : "/tmp") + "/.cache/thinwire";
}

std::string speed_key(std::string_view form, std::int64_t side, int ranks) {
  return fmt::format("{};{};{};{};{}", kVersion, processor(), form, side, ranks);
}

std::int64_t days_since_1970() {
  const auto now = std::chrono::system_clock::now();
  return std::chrono::floor<std::chrono::days>(now).time_since_epoch().count();
}

SpeedCache::SpeedCache(std::string path) : path_(std::move(path)) {}

std::optional<CodecSpeed> SpeedCache::find(const std::string& key, std::int64_t today) const {
  const Json all = read_speeds(path_);
  const auto found = all.find(key);
  if (found == all.end() || !found->is_array() || found->size() != 3) return std::nullopt;
  for (const Json& number : *found)
    if (!number.is_number()) return std::nullopt;
  const auto age = today - (*found)[2].get<std::int64_t>();
  const CodecSpeed out{(*found)[0].get<double>(), (*found)[1].get<double>()};
  const bool usable =
      age >= 0 && age < kDaysKept && out.encode_bytes_per_s > 0 && out.decode_bytes_per_s > 0;
  return usable ? std::optional(out) : std::nullopt;
}

void SpeedCache::add(const std::string& key, const CodecSpeed& speed, std::int64_t today) const {
  Json all = read_speeds(path_);
  all[key] = {speed.encode_bytes_per_s, speed.decode_bytes_per_s, today};
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  const std::string fresh = fmt::format("{}.{}", path_, getpid());  // nobody reads a half of it
  try {
    write_text(fresh, all.dump(1) + '\n');
  } catch (const std::exception&) {
    return;
  }
  fs::rename(fresh, path_, error);
}

}  // namespace thinwire
