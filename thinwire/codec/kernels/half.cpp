// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/half.h"

#include "thinwire/codec/kernels/half_avx2.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"
#include "thinwire/core/half.h"

namespace thinwire::kernels {
namespace {

std::uint16_t narrow(Half format, float x) {
  return format == Half::f16 ? f32_to_f16(x) : f32_to_bf16(x);
}
float widen(Half format, std::uint16_t bits) {
  return format == Half::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void encode_from(std::size_t from, Half format, std::span<const float> x, std::uint16_t* out) {
  for (std::size_t i = from; i < x.size(); ++i) out[i] = narrow(format, x[i]);
}

void residual_from(std::size_t from, Half format, std::span<float> x, std::uint16_t* out) {
  for (std::size_t i = from; i < x.size(); ++i) {
    out[i] = narrow(format, x[i]);
    x[i] -= widen(format, out[i]);
  }
}

void decode_from(std::size_t from, Half format, const std::uint16_t* in, std::span<float> out,
                 Write mode) {
  for (std::size_t i = from; i < out.size(); ++i) {
    const float value = widen(format, in[i]);
    out[i] = mode == Write::add ? out[i] + value : value;
  }
}

}  // namespace

void encode_half(Half format, std::span<const float> x, std::span<std::uint16_t> out) {
  TW_ASSERT(out.size(), ==, x.size());
  const std::size_t over = reinterpret_cast<std::uintptr_t>(out.data()) % avx2::kLine;
  if (over != 0 && x.size() > 2 * avx2::kLarge) {  // begin at a whole line
    const std::size_t first = (avx2::kLine - over) / sizeof(std::uint16_t);
    encode_from(0, format, x.first(first), out.data());
    x = x.subspan(first);
    out = out.subspan(first);
  }
  const std::size_t done =
      simd() == Simd::scalar ? 0 : avx2::encode_half(format, x.data(), x.size(), out.data());
  encode_from(done, format, x, out.data());
}

void encode_half_residual(Half format, std::span<float> x, std::span<std::uint16_t> out) {
  TW_ASSERT(out.size(), ==, x.size());
  const std::size_t done = simd() == Simd::scalar
                               ? 0
                               : avx2::encode_half_residual(format, x.data(), x.size(), out.data());
  residual_from(done, format, x, out.data());
}

void decode_half(Half format, std::span<const std::uint16_t> in, std::span<float> out, Write mode) {
  TW_ASSERT(out.size(), ==, in.size());
  const std::size_t done = simd() == Simd::scalar
                               ? 0
                               : avx2::decode_half(format, in.data(), in.size(), out.data(), mode);
  decode_from(done, format, in.data(), out, mode);
}

namespace reference {

void encode_half(Half format, std::span<const float> x, std::span<std::uint16_t> out) {
  TW_ASSERT(out.size(), ==, x.size());
  encode_from(0, format, x, out.data());
}

void encode_half_residual(Half format, std::span<float> x, std::span<std::uint16_t> out) {
  TW_ASSERT(out.size(), ==, x.size());
  residual_from(0, format, x, out.data());
}

void decode_half(Half format, std::span<const std::uint16_t> in, std::span<float> out, Write mode) {
  TW_ASSERT(out.size(), ==, in.size());
  decode_from(0, format, in.data(), out, mode);
}

}  // namespace reference

}  // namespace thinwire::kernels
