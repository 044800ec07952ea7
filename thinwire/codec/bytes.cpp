// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/bytes.h"

#include <ATen/ops/add.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "thinwire/core/error.h"

namespace thinwire {

Tensor& byte_room(Tensor& kept, Bytes count, const Tensor& like) {
  if (!kept.defined() || kept.numel() != count || kept.device() != like.device())
    kept = at::empty({count}, like.options().dtype(at::kByte));
  return kept;
}

std::span<std::uint8_t> section(const Tensor& bytes, Bytes begin, Bytes count) {
  return std::span(static_cast<std::uint8_t*>(bytes.data_ptr()),
                   static_cast<std::size_t>(bytes.numel()))
      .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

const Tensor& checked_any_bytes(std::string_view codec, const Payload& payload) {
  if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != at::kByte ||
      payload.parts[0].dim() != 1 || !payload.parts[0].is_contiguous())
    throw DataError(fmt::format("{}: a payload is one dense part of bytes, got {} parts", codec,
                                payload.parts.size()));
  return payload.parts[0];
}

const Tensor& checked_bytes(std::string_view codec, const Payload& payload, Bytes count) {
  const Tensor& bytes = checked_any_bytes(codec, payload);
  if (bytes.numel() != count)
    throw DataError(
        fmt::format("{}: a payload must have {} bytes, got {}", codec, count, bytes.numel()));
  return bytes;
}

void prepare_sum(Tensor& out, std::int64_t count, at::ScalarType type, Write mode) {
  if (!out.defined())
    out = at::zeros({count}, at::TensorOptions().dtype(type));
  else if (mode == Write::set)
    out.zero_();
}

void decode_single(Tensor& out, std::int64_t count, Write mode,
                   const std::function<void(Tensor& out, Write mode)>& write) {
  if (!out.defined()) out = at::empty({count}, at::kFloat);
  if (out.scalar_type() == at::kFloat) return write(out, mode);
  Tensor value = at::empty({count}, at::kFloat);
  write(value, Write::set);
  mode == Write::set ? out.copy_(value) : out.add_(value);
}

}  // namespace thinwire
