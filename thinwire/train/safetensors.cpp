// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"

namespace thinwire {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");
constexpr std::uint64_t kMostHeader = 100'000'000;  // the form's own limit

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr std::array<DTypeName, 11> kNames{{{DType::f64, "F64"},
                                            {DType::f32, "F32"},
                                            {DType::f16, "F16"},
                                            {DType::bf16, "BF16"},
                                            {DType::i64, "I64"},
                                            {DType::i32, "I32"},
                                            {DType::i16, "I16"},
                                            {DType::i8, "I8"},
                                            {DType::u8, "U8"},
                                            {DType::bool8, "BOOL"},
                                            {DType::c64, "C64"}}};

const char* name_of(DType dtype) {
  for (const auto& entry : kNames)
    if (entry.dtype == dtype) return entry.name;
  throw UnsupportedError(fmt::format("safetensors has no type {}", to_string(dtype)));
}

/// Elements; DataError where the product leaves 63 bits.
std::int64_t product(const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t count = 1;
  for (const auto extent : shape) {
    if (extent < 0) throw DataError(fmt::format("{}: an extent is {}", where, extent));
    if (__builtin_mul_overflow(count, extent, &count))
      throw DataError(fmt::format("{}: its shape names too many elements", where));
  }
  return count;
}

TensorEntry entry_from(const Json& json, const std::string& where, std::int64_t data_bytes) {
  TensorEntry entry;
  const auto type = get<std::string>(json, "dtype", where);
  const auto* known = std::find_if(kNames.begin(), kNames.end(),
                                   [&](const auto& candidate) { return candidate.name == type; });
  if (known == kNames.end()) throw DataError(fmt::format("{}: unknown dtype '{}'", where, type));
  entry.dtype = known->dtype;
  entry.shape = get<std::vector<std::int64_t>>(json, "shape", where);
  const auto offsets = get<std::vector<std::int64_t>>(json, "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > data_bytes)
    throw DataError(
        fmt::format("{}: data_offsets must lie in [0, {}] in order", where, data_bytes));
  entry.begin = offsets[0];
  entry.bytes = offsets[1] - offsets[0];
  const std::int64_t count = product(entry.shape, where);
  std::int64_t wanted = 0;
  if (__builtin_mul_overflow(count, dtype_bytes(entry.dtype), &wanted) || wanted != entry.bytes)
    throw DataError(
        fmt::format("{}: shape and dtype need other than the {} bytes given", where, entry.bytes));
  return entry;
}

/// Every byte of the data belongs to exactly one tensor.
void check_cover(const SafetensorsFile& file, const std::string& source) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (const auto& [name, entry] : file.tensors) parts.emplace_back(entry.begin, entry.bytes);
  std::sort(parts.begin(), parts.end());
  std::int64_t at = 0;
  for (const auto& [begin, bytes] : parts) {
    if (begin != at)
      throw DataError(fmt::format("{}: tensors overlap or leave a gap at byte {}", source, at));
    at += bytes;
  }
  if (at != static_cast<std::int64_t>(file.data.size()))
    throw DataError(
        fmt::format("{}: {} bytes of data, the header names {}", source, file.data.size(), at));
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorSpan>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorSpan*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (dtype_bytes(a->dtype) != dtype_bytes(b->dtype))
      return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
    return a->name < b->name;
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const auto* tensor : order) {
    if (header.contains(tensor->name))
      throw ConfigError(fmt::format("{}: two tensors have the name '{}'", path, tensor->name));
    const std::int64_t bytes = product(tensor->shape, tensor->name) * dtype_bytes(tensor->dtype);
    header[tensor->name] = {{"dtype", name_of(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  out.reserve(8 + text.size() + static_cast<std::size_t>(at));
  out += text;
  for (const auto* tensor : order)
    out.append(static_cast<const char*>(tensor->data),
               static_cast<std::size_t>(product(tensor->shape, tensor->name) *
                                        dtype_bytes(tensor->dtype)));
  write_text(path, out);
}

SafetensorsFile parse_safetensors(std::string_view bytes, const std::string& source) {
  std::uint64_t length = 0;
  if (bytes.size() < 8)
    throw DataError(fmt::format("{}: no safetensors file: {} bytes", source, bytes.size()));
  std::memcpy(&length, bytes.data(), 8);
  if (length > kMostHeader || length > bytes.size() - 8)
    throw DataError(fmt::format("{}: no safetensors file: a header of {} bytes in a file of {}",
                                source, length, bytes.size()));
  const Json header = parse_json(bytes.substr(8, length), source);
  if (!header.is_object()) throw DataError(fmt::format("{}: the header is no object", source));
  SafetensorsFile file;
  file.data = std::string(bytes.substr(8 + length));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) throw DataError(fmt::format("{}: __metadata__ is no object", source));
      for (const auto& [key, text] : value.items())
        file.metadata[key] = get<std::string>(value, key.c_str(), source);
    } else {
      file.tensors[name] = entry_from(value, fmt::format("{}: tensor '{}'", source, name),
                                      static_cast<std::int64_t>(file.data.size()));
    }
  }
  check_cover(file, source);
  return file;
}

SafetensorsFile read_safetensors(const std::string& path) {
  return parse_safetensors(read_text(path), path);
}

}  // namespace thinwire
