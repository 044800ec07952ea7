// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "thinwire/core/text.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace thinwire {
namespace {

/// A file descriptor that is closed whatever happens; an error while writing removes the file
/// again.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {}
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (fd_ >= 0 && !kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  bool open() const { return fd_ >= 0; }
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return ::fsync(fd_) == 0;
  }
  bool rename_to(const std::string& target) {
    kept_ = ::rename(path_.c_str(), target.c_str()) == 0;
    return kept_;
  }

 private:
  std::string path_;
  int fd_;
  bool kept_ = false;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto at = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
    const std::string_view before = text.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto start = before.rfind('\n');
    const auto column = start == std::string_view::npos ? at + 1 : at - start;
    std::string why =
        error.what();  // "[json.exception.parse_error.101] parse error at ...: reason"
    if (const auto colon = why.find(": "); colon != std::string::npos) why.erase(0, colon + 2);
    throw DataError(
        fmt::format("{}: not valid JSON at line {}, column {}: {}", source, line, column, why));
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: not valid JSON: {}", source, error.what()));
  }
}

std::string dump(const Json& json, std::string_view source) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    throw ConfigError(fmt::format("{}: a name in it is not UTF-8 text", source));
  }
}

std::string dump_lines(const Json& json, std::string_view source) {
  std::string out = "{";
  for (const auto& [key, value] : json.items()) {
    out += fmt::format("{}\n  {}: ", out.size() > 1 ? "," : "", Json(key).dump());
    if (!value.is_array() || value.empty() || !value[0].is_structured()) {
      out += dump(value, source);
      continue;
    }
    const char* before = "[";
    for (const auto& item : value) {
      out += fmt::format("{}\n    {}", before, dump(item, source));
      before = ",";
    }
    out += ']';
  }
  return out + "\n}\n";
}

void known_keys(const Json& json, std::initializer_list<const char*> keys,
                std::string_view source) {
  if (!json.is_object())
    throw DataError(fmt::format("{}: an object was expected, found {}", source, json.type_name()));
  const std::vector<std::string> valid(keys.begin(), keys.end());
  for (const auto& [key, value] : json.items())
    if (std::find(valid.begin(), valid.end(), key) == valid.end())
      throw DataError(fmt::format("{}: {}", source, unknown_name("key", key, valid)));
}

Json read_json(const std::string& path) { return parse_json(read_text(path), path); }

std::string read_text(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0)
    throw ConfigError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  if (S_ISDIR(status.st_mode))
    throw ConfigError(fmt::format("cannot read '{}': it is a folder", path));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  if (file) out << file.rdbuf();
  if (!file && status.st_size > 0)
    throw ConfigError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return std::move(out).str();
}

void write_text(const std::string& path, std::string_view text) {
  struct stat status{};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    throw ConfigError(fmt::format("cannot write '{}': it is a folder", path));
  // A pipe or a device is written as it is: it cannot be replaced by renaming.
  if (exists && !S_ISREG(status.st_mode)) {
    std::ofstream out(path, std::ios::binary);
    if (!(out << text).flush()) throw Error(fmt::format("cannot write '{}'", path));
    return;
  }
  static std::atomic<unsigned> count{0};
  TemporaryFile file(fmt::format("{}.{}-{}.tmp", path, ::getpid(), count++));
  if (!file.open())
    throw ConfigError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  if (!file.write(text) || !file.rename_to(path))
    throw Error(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
}

}  // namespace thinwire
