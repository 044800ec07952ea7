// SPDX-License-Identifier: Apache-2.0
// File forms: plain and gzip bytes, IDX, PNG; checksums and fetching.
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <png.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "thinwire/core/error.h"
#include "thinwire/train/data.h"

extern char** environ;

namespace thinwire {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 30;  // a gzip bomb ends here

std::uint32_t big_endian(const std::uint8_t* at) {
  return (std::uint32_t{at[0]} << 24) | (std::uint32_t{at[1]} << 16) | (std::uint32_t{at[2]} << 8) |
         at[3];
}

/// Runs a program with its output dropped; true if it ended with 0.
bool run_quietly(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_directory(path, error))
    throw ConfigError(
        fmt::format("cannot read '{}': {}", path,
                    fs::is_directory(path, error) ? "it is a folder" : std::strerror(ENOENT)));
  // gzread hands plain files through as they are.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw ConfigError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  gzbuffer(file.get(), 1 << 18);
  std::vector<std::uint8_t> bytes;
  std::size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(std::max<std::size_t>(1 << 20, bytes.size() * 2));
    const int got =
        gzread(file.get(), bytes.data() + used,
               static_cast<unsigned>(std::min(bytes.size() - used, std::size_t{1} << 30)));
    if (got < 0) {
      int code = 0;
      throw DataError(fmt::format("{}: damaged gzip file: {}", path, gzerror(file.get(), &code)));
    }
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > kMostBytes) throw DataError(fmt::format("{}: more than 4 GiB when unpacked", path));
  }
  int code = 0;
  gzerror(file.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END)
    throw DataError(fmt::format("{}: damaged gzip file: it ends too early", path));
  bytes.resize(used);
  return bytes;
}

IdxFile read_idx(const std::string& path) {
  const auto bytes = read_bytes(path);
  const auto bad = [&](const std::string& why) {
    return DataError(fmt::format("{}: no IDX file of bytes: {}", path, why));
  };
  if (bytes.size() < 4) throw bad(fmt::format("it has {} bytes", bytes.size()));
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8)
    throw bad(fmt::format("it starts with {:02x} {:02x} {:02x}, not 00 00 08", bytes[0], bytes[1],
                          bytes[2]));
  const std::size_t dimensions = bytes[3], header = 4 + 4 * dimensions;
  if (dimensions == 0 || dimensions > 4) throw bad(fmt::format("{} dimensions", dimensions));
  if (bytes.size() < header) throw bad("its header is cut short");
  IdxFile out;
  std::size_t wanted = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    const std::uint32_t extent = big_endian(bytes.data() + 4 + 4 * d);
    out.shape.push_back(extent);
    if (extent != 0 && wanted > kMostBytes / extent) throw bad("its header names too many bytes");
    wanted *= extent;
  }
  if (bytes.size() - header != wanted)
    throw bad(fmt::format("its header names {} bytes, {} follow", wanted, bytes.size() - header));
  out.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return out;
}

RgbImage read_png(const std::string& path) {
  if (!fs::is_regular_file(path))
    throw ConfigError(fmt::format("cannot read '{}': {}", path, std::strerror(ENOENT)));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&image, path.c_str()))
    throw DataError(fmt::format("{}: no PNG image: {}", path, image.message));
  image.format = PNG_FORMAT_RGB;
  RgbImage out{image.height, image.width, {}};
  if (std::uint64_t{image.height} * image.width > (std::uint64_t{1} << 28)) {
    png_image_free(&image);
    throw DataError(fmt::format("{}: an image of {} x {} pixels is too large", path, image.width,
                                image.height));
  }
  out.pixels.resize(PNG_IMAGE_SIZE(image));
  if (!png_image_finish_read(&image, nullptr, out.pixels.data(), 0, nullptr))
    throw DataError(fmt::format("{}: damaged PNG image: {}", path, image.message));
  return out;
}

std::string content_sha256(const std::string& path) {
  const auto bytes = read_bytes(path);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1)
    throw Error("SHA-256 is not available in this OpenSSL");
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

bool fetch_file(const std::string& folder, const std::string& name, const std::string& sha256,
                const std::vector<std::string>& urls, std::vector<std::string>& notices) {
  const std::string path = (fs::path(folder) / name).string();
  if (fs::exists(path)) {
    if (content_sha256(path) == sha256) return true;
    throw DataError(
        fmt::format("{}: its SHA-256 is not {}; remove it to fetch it again", path, sha256));
  }
  if (urls.empty()) return false;
  std::error_code error;
  fs::create_directories(folder, error);
  // Several ranks may fetch at once: each into its own file, the last rename wins with equal bytes.
  const std::string part = fmt::format("{}.{}.part", path, ::getpid());
  for (const auto& url : urls) {
    notices.push_back(fmt::format("fetching {}", url));
    if (!run_quietly(
            {"curl", "-fsSL", "--connect-timeout", "5", "--max-time", "600", "-o", part, url}) &&
        !run_quietly({"wget", "-q", "-T", "5", "-t", "1", "-O", part, url})) {
      fs::remove(part, error);
      continue;
    }
    const std::string got = content_sha256(part);
    if (got != sha256) {
      fs::remove(part, error);
      throw DataError(fmt::format("{}: SHA-256 {} expected, got {}", url, sha256, got));
    }
    fs::rename(part, path);
    return true;
  }
  return false;
}

}  // namespace thinwire
