// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "thinwire/codec/kernels/levels.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

constexpr int kRaw = 32, kMostBits = 16;
// A little less than twice the bound, so that rounding in single precision stays within it.
constexpr float kStep = 255.0F / 128;

struct Quantised {
  std::array<std::int32_t, kBoundedBlock> levels{};
  int bits = 0;
};

/// Levels of a block, or kRaw bits where they are too large to be sure of the bound.
Quantised quantise(std::span<const float> x, float step) {
  Quantised out;
  float largest = 0;
  bool numbers = true;
  for (const float each : x) {
    largest = std::max(largest, std::fabs(each));
    numbers = numbers && std::isfinite(each);
  }
  if (!numbers || !(largest < step * 16383.0F)) {
    out.bits = largest == 0 && numbers ? 0 : kRaw;
    return out;
  }
  std::int32_t most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.levels[i] = static_cast<std::int32_t>(std::lrintf(x[i] / step));
    most = std::max(most, std::abs(out.levels[i]));
  }
  out.bits = most == 0 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint32_t>(most))) + 1;
  return out;
}

void put(float value, float by, float& out, Write mode) {
  out = mode == Write::set ? by * value : out + by * value;
}

/// One block; returns what is left of the bytes.
std::span<const std::uint8_t> decode_block(std::span<const std::uint8_t> bytes, float step,
                                           float by, std::span<float> out, Write mode) {
  const auto refuse = [](const std::string& why) { throw DataError("error_bounded: " + why); };
  if (bytes.empty()) refuse("the payload ends before its last block");
  const int bits = bytes[0];
  if (bits != kRaw && (bits > kMostBits || bits == 1))
    refuse(fmt::format("a width must be 0, 2 to {} or {}, got {}", kMostBits, kRaw, bits));
  const auto size =
      static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(out.size()), bits));
  if (bytes.size() < 1 + size) refuse("the payload ends within a block");
  const auto packed = bytes.subspan(1, size);
  if (bits == 0) {
    for (float& each : out) put(0, by, each, mode);
  } else if (bits == kRaw) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      float value = 0;
      std::memcpy(&value, packed.data() + 4 * i, 4);
      put(value, by, out[i], mode);
    }
  } else {
    std::array<std::uint16_t, kBoundedBlock> fields{};
    unpack_fields(packed, bits, std::span(fields).first(out.size()));
    for (std::size_t i = 0; i < out.size(); ++i)
      put(static_cast<float>(fields[i] - (1 << (bits - 1))) * step, by, out[i], mode);
  }
  return bytes.subspan(1 + size);
}

}  // namespace

Range range_of(std::span<const float> x) {
  if (x.empty()) return {};
  Range out{x[0], x[0]};
  bool numbers = true;
  for (const float each : x) {
    out.least = each < out.least ? each : out.least;
    out.largest = each > out.largest ? each : out.largest;
    numbers = numbers && each == each;
  }
  const float none = std::numeric_limits<float>::quiet_NaN();
  return numbers ? out : Range{none, none};
}

void decode_range(std::span<const std::uint8_t> packed, int bits, Range range, float by,
                  std::span<float> out, Write mode) {
  if (!std::isfinite(range.least) || !std::isfinite(range.largest) || range.least > range.largest)
    throw DataError(fmt::format("minmax: a range must be finite and rise, got {} to {}",
                                range.least, range.largest));
  const float step = (range.largest - range.least) / static_cast<float>((1 << bits) - 1);
  if (packed.size() !=
      static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(out.size()), bits)))
    throw DataError(fmt::format("minmax: {} values of {} bits do not have {} bytes", out.size(),
                                bits, packed.size()));
  constexpr std::size_t kChunk = 1024;  // whole bytes of any width
  std::array<std::uint16_t, kChunk> fields;
  for (std::size_t begin = 0; begin < out.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - begin);
    const auto some = std::span(fields).first(count);
    unpack_fields(packed.subspan(begin / 8 * static_cast<std::size_t>(bits),
                                 static_cast<std::size_t>(
                                     packed_bytes(static_cast<std::int64_t>(count), bits))),
                  bits, some);
    for (std::size_t i = 0; i < count; ++i)
      put(range.least + static_cast<float>(some[i]) * step, by, out[begin + i], mode);
  }
}

void encode_bounded(std::span<const float> x, float bound, std::vector<std::uint8_t>& out) {
  const float step = kStep * bound;
  const auto append = [&](const void* bytes, std::size_t count) {
    const auto* from = static_cast<const std::uint8_t*>(bytes);
    out.insert(out.end(), from, from + count);
  };
  append(&step, 4);
  for (std::size_t begin = 0; begin < x.size(); begin += kBoundedBlock) {
    const auto part = x.subspan(begin, std::min(kBoundedBlock, x.size() - begin));
    const Quantised block = quantise(part, step);
    out.push_back(static_cast<std::uint8_t>(block.bits));
    if (block.bits == kRaw) {
      append(part.data(), part.size_bytes());
    } else if (block.bits > 0) {
      std::array<std::uint16_t, kBoundedBlock> fields{};
      for (std::size_t i = 0; i < part.size(); ++i)
        fields[i] = static_cast<std::uint16_t>(block.levels[i] + (1 << (block.bits - 1)));
      const auto size = static_cast<std::size_t>(
          packed_bytes(static_cast<std::int64_t>(part.size()), block.bits));
      out.resize(out.size() + size);
      pack_fields(std::span<const std::uint16_t>(fields).first(part.size()), block.bits,
                  std::span(out).last(size));
    }
  }
}

void decode_bounded(std::span<const std::uint8_t> bytes, float by, std::span<float> out,
                    Write mode) {
  float step = 0;
  if (bytes.size() < 4) throw DataError("error_bounded: the payload ends before its step");
  std::memcpy(&step, bytes.data(), 4);
  if (!std::isfinite(step) || step < 0)
    throw DataError(
        fmt::format("error_bounded: a step must be finite and at least 0, got {}", step));
  bytes = bytes.subspan(4);
  for (std::size_t begin = 0; begin < out.size(); begin += kBoundedBlock)
    bytes = decode_block(bytes, step, by,
                         out.subspan(begin, std::min(kBoundedBlock, out.size() - begin)), mode);
  if (!bytes.empty())
    throw DataError(fmt::format("error_bounded: {} bytes past the last block", bytes.size()));
}

}  // namespace thinwire::kernels
