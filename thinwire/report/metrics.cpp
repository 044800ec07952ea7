// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace thinwire {
namespace {

// Every field of a row, once: writing and reading cannot disagree.
template <class Row, class Fn>
void each_field(Row& row, Fn&& field) {
  field("epoch", row.epoch);
  field("time_s", row.time_s);
  field("loss", row.loss);
  field("accuracy", row.accuracy);
  field("test_loss", row.test_loss);
  field("test_accuracy", row.test_accuracy);
  field("learning_rate", row.learning_rate);
  field("samples_per_s", row.samples_per_s);
  field("step_s", row.step_s);
  field("compute_s", row.compute_s);
  field("exposed_s", row.exposed_s);
  field("wire_bytes", row.wire_bytes);
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(Bytes value) { return value; }

void read_number(const Json& json, const char* key, std::string_view source,
                 std::optional<double>& out) {
  out = json.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN()
                               : get<double>(json, key, source);
}
void read_number(const Json& json, const char* key, std::string_view source,
                 std::optional<Bytes>& out) {
  out = get<Bytes>(json, key, source);
}

}  // namespace

Json to_json(const MetricsRow& row) {
  Json json = {{"step", row.step}};
  each_field(row, [&](const char* key, const auto& value) {
    if (value) json[key] = number(*value);
  });
  return json;
}

MetricsRow metrics_row_from_json(const Json& json, std::string_view source) {
  if (!json.is_object())
    throw DataError(fmt::format("{}: a row must be an object, got {}", source, json.dump()));
  MetricsRow row;
  row.step = get<std::int64_t>(json, "step", source);
  each_field(row, [&](const char* key, auto& value) {
    if (json.contains(key)) read_number(json, key, source, value);
  });
  return row;
}

JsonLinesWriter::JsonLinesWriter(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    throw ConfigError(fmt::format("cannot open {} for writing: {}", path_, std::strerror(errno)));
}

JsonLinesWriter::~JsonLinesWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

JsonLinesWriter::JsonLinesWriter(JsonLinesWriter&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

JsonLinesWriter& JsonLinesWriter::operator=(JsonLinesWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void JsonLinesWriter::write(const Json& value) {
  write_lines(value.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

void JsonLinesWriter::write_lines(const std::string& lines) {
  const char* data = lines.data();
  std::size_t left = lines.size();
  while (left > 0) {
    const ssize_t written = ::write(descriptor_, data, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw ConfigError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    data += written;
    left -= static_cast<std::size_t>(written);
  }
}

std::vector<Json> read_json_lines(const std::string& path) {
  const std::string text = read_text(path);
  std::vector<Json> values;
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // the writer died in this line
    const std::string_view content(text.data() + begin, end - begin);
    if (content.find_first_not_of(" \t\r") != std::string_view::npos)
      values.push_back(parse_json(content, fmt::format("{}:{}", path, line)));
    begin = end + 1;
  }
  return values;
}

std::vector<MetricsRow> read_metrics(const std::string& path) {
  std::vector<MetricsRow> rows;
  for (const Json& json : read_json_lines(path))
    rows.push_back(metrics_row_from_json(json, fmt::format("{}, row {}", path, rows.size() + 1)));
  return rows;
}

}  // namespace thinwire
