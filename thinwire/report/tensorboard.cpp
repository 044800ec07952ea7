// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files. A record is: length (u64), masked CRC-32C of the length, data, masked
// CRC-32C of the data, little-endian. The data is one protocol-buffer message Event:
//   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//   Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "thinwire/report/metrics.h"

namespace thinwire {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& out, int field, Wire wire) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, Wire::bytes);
  append_varint(out, bytes.size());
  out += bytes;
}

std::string event_begin(std::int64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_raw(
      event,
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = crc;
  }
  return table;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  static std::atomic<int> serial{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.{}", folder,
                      std::chrono::duration_cast<std::chrono::seconds>(now).count(), host.data(),
                      getpid(), serial++);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    throw ConfigError(fmt::format("cannot open {} for writing: {}", path_, std::strerror(errno)));
  std::string event = event_begin(0);
  append_bytes(event, 3, "brain.Event:2");
  record(event);
}

TensorBoardWriter::~TensorBoardWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

void TensorBoardWriter::record(const std::string& event) {
  std::string framed;
  append_raw(framed, static_cast<std::uint64_t>(event.size()));
  append_raw(framed, masked_crc32c(framed));
  framed += event;
  append_raw(framed, masked_crc32c(event));
  const char* data = framed.data();
  std::size_t left = framed.size();
  while (left > 0) {
    const ssize_t written = ::write(descriptor_, data, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw ConfigError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    data += written;
    left -= static_cast<std::size_t>(written);
  }
}

void TensorBoardWriter::write(std::int64_t step,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  if (scalars.empty()) return;
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string one;
    append_bytes(one, 1, tag);
    append_key(one, 2, Wire::fixed32);
    append_raw(one, static_cast<float>(value));
    append_bytes(summary, 1, one);
  }
  std::string event = event_begin(step);
  append_bytes(event, 5, summary);
  record(event);
}

void TensorBoardWriter::write(const MetricsRow& row) {
  std::vector<std::pair<std::string, double>> scalars;
  const auto add = [&](const char* tag, const auto& value) {
    if (value) scalars.emplace_back(tag, static_cast<double>(*value));
  };
  add("train/loss", row.loss);
  add("train/accuracy", row.accuracy);
  add("train/learning_rate", row.learning_rate);
  add("train/epoch", row.epoch);
  add("test/loss", row.test_loss);
  add("test/accuracy", row.test_accuracy);
  add("speed/samples_per_s", row.samples_per_s);
  add("speed/step_s", row.step_s);
  add("speed/compute_s", row.compute_s);
  add("speed/exposed_s", row.exposed_s);
  add("wire/sent_bytes", row.wire_bytes);
  write(row.step, scalars);
}

}  // namespace thinwire
