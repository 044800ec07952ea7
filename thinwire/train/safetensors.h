// SPDX-License-Identifier: Apache-2.0
// The safetensors file form, as the Python package of that name reads and writes it: 8 bytes with
// the length of a JSON header, the header (name -> dtype, shape, data offsets), then the data,
// little-endian. Files are hostile until checked. No torch.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {

/// A tensor to write; the memory is borrowed and dense, in row-major order.
struct TensorSpan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

/// Writes all tensors, sorted by (dtype size, name) so that each is aligned. Atomic: a temporary
/// file, fsync, rename. ConfigError for a path that cannot be written, and for a name twice.
void write_safetensors(const std::string& path, const std::vector<TensorSpan>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct TensorEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, bytes = 0;  ///< within data
};
struct SafetensorsFile {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::string data;
};
/// ConfigError if it cannot be read, DataError that names the file and the entry if it is
/// malformed: lengths, offsets, overlaps and gaps are checked before anything is used.
SafetensorsFile read_safetensors(const std::string& path);
SafetensorsFile parse_safetensors(std::string_view bytes, const std::string& source);

}  // namespace thinwire
