// SPDX-License-Identifier: Apache-2.0
// Payloads that are one string of bytes: sections of it, and the check of its length.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "thinwire/codec/codec.h"

namespace thinwire {

/// A kept tensor of `count` bytes; made anew only for another count or device.
Tensor& byte_room(Tensor& kept, Bytes count, const Tensor& like);
/// Bytes [begin, begin + count) of a flat tensor of bytes. Not aligned for anything wider: read and
/// write that by copies of bytes.
std::span<std::uint8_t> section(const Tensor& bytes, Bytes begin, Bytes count);
/// The one part of a payload, dense bytes on the host or a device. DataError that names the codec
/// where it is another part count, type or length.
const Tensor& checked_bytes(std::string_view codec, const Payload& payload, Bytes count);
/// The same for a payload of any length.
const Tensor& checked_any_bytes(std::string_view codec, const Payload& payload);
/// `out`, or a fresh tensor where it is undefined; zero then, or if mode is set.
void prepare_sum(Tensor& out, std::int64_t count, at::ScalarType type, Write mode);
/// decode() of a codec that works in single precision: `write` sets or adds to `out` where that has
/// this type or is undefined (it becomes a tensor then), else to a tensor that goes into `out`.
void decode_single(Tensor& out, std::int64_t count, Write mode,
                   const std::function<void(Tensor& out, Write mode)>& write);

/// The elements of a dense tensor of single precision on the host.
inline std::span<const float> floats_of(const Tensor& x) {
  return {x.const_data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}
inline std::span<float> floats_in(Tensor& x) {
  return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}

}  // namespace thinwire
