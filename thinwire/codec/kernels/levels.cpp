// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/kernels/levels_wide.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

constexpr std::size_t kBlock = 16 * kGroup;  // elements rounded before they are packed

std::int32_t magnitude(float x) { return std::bit_cast<std::int32_t>(x) & 0x7fffffff; }

Rounding rounding_of(const Levels& levels, const Rng& rng) {
  TW_ASSERT(levels.count, >=, 1);
  TW_ASSERT(levels.count, <=, 32767);
  Rounding rounding;
  rounding.limit = static_cast<float>(levels.count) * 65536.0F;
  rounding.before = std::fabs(levels.scale) < 0x1p-60F ? 0x1p80F : 1.0F;
  rounding.factor = levels.scale == 0 ? 0.0F : rounding.limit / (levels.scale * rounding.before);
  rounding.unit = levels.unit();
  rounding.stream = rng.stream();
  auto key = rng.key();
  for (auto& each : rounding.keys) {
    each = {key[0], key[1]};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return rounding;
}

std::int16_t round_one(const Rounding& rounding, float x, std::uint32_t random) {
  float steps = x * rounding.before * rounding.factor;
  steps = steps < rounding.limit ? steps : rounding.limit;
  steps = steps > -rounding.limit ? steps : -rounding.limit;
  const auto sum = static_cast<std::int32_t>(std::lrintf(steps)) + static_cast<int>(random);
  return static_cast<std::int16_t>(sum >> 16);
}

/// One group or what is left of it.
void round_group(const Rounding& rounding, const Rng& rng, std::uint64_t group,
                 std::span<const float> x, std::int16_t* codes, float* rest) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t word = i / 16, block = i % 16 / 2, half = i % 2;
    const std::uint64_t index = 8 * group + block;
    const auto words =
        philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    rng.stream()[0], rng.stream()[1]},
                   rng.key(), kRounds);
    const std::uint32_t random = words[word] >> (16 * half) & 0xffff;
    const float value = x[i];
    codes[i] = round_one(rounding, value, random);
    if (rest != nullptr) rest[i] = value - static_cast<float>(codes[i]) * rounding.unit;
  }
}

void round_groups(const Rounding& rounding, std::uint64_t group, const float* x, std::size_t groups,
                  std::int16_t* codes, float* rest) {
  simd() == Simd::avx512 ? round_groups_avx512(rounding, x, groups, group, codes, rest)
                         : round_groups_avx2(rounding, x, groups, group, codes, rest);
}

/// Rounds up to a block of elements that begins with group number `group`. rest may be x itself.
void round_block(const Rounding& rounding, const Rng& rng, std::uint64_t group,
                 std::span<const float> x, std::int16_t* codes, float* rest) {
  if (simd() == Simd::scalar || rounding.before != 1) {
    for (std::size_t at = 0; at < x.size(); at += kGroup)
      round_group(rounding, rng, group + at / kGroup,
                  x.subspan(at, std::min(kGroup, x.size() - at)), codes + at,
                  rest == nullptr ? nullptr : rest + at);
    return;
  }
  const std::size_t groups = x.size() / kGroup, done = groups * kGroup, left = x.size() - done;
  round_groups(rounding, group, x.data(), groups, codes, rest);
  if (left == 0) return;
  float padded[kGroup] = {}, padded_rest[kGroup];
  std::copy_n(x.data() + done, left, padded);
  round_groups(rounding, group + groups, padded, 1, codes + done, padded_rest);
  if (rest != nullptr) std::copy_n(padded_rest, left, rest + done);
}

template <class Each>
void in_blocks(std::span<const float> x, const Levels& levels, const RngKey& key, float* rest,
               Each each) {
  const Rng rng(key);
  const Rounding rounding = rounding_of(levels, rng);
  std::int16_t codes[kBlock];
  for (std::size_t at = 0; at < x.size(); at += kBlock) {
    const auto part = x.subspan(at, std::min(kBlock, x.size() - at));
    round_block(rounding, rng, at / kGroup, part, codes, rest == nullptr ? nullptr : rest + at);
    each(at, std::span<const std::int16_t>(codes, part.size()));
  }
}

template <class Code>
void round_to(std::span<const float> x, const Levels& levels, const RngKey& key,
              std::span<Code> out) {
  TW_ASSERT(out.size(), ==, x.size());
  TW_ASSERT(levels.count, <=, int{std::numeric_limits<std::int16_t>::max()});
  if constexpr (sizeof(Code) == 1) TW_ASSERT(levels.count, <=, 127);
  in_blocks(x, levels, key, nullptr, [&](std::size_t at, std::span<const std::int16_t> codes) {
    for (std::size_t i = 0; i < codes.size(); ++i) out[at + i] = static_cast<Code>(codes[i]);
  });
}

template <class Code>
void decode_from(std::span<const Code> codes, float unit, std::span<float> out, Write mode) {
  TW_ASSERT(out.size(), ==, codes.size());
  if (mode == Write::set)
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(codes[i]) * unit;
  else
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<float>(codes[i]) * unit;
}

/// Writes fields one after the other; ends with a whole byte.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* to) : to_(to) {}
  void put(std::uint32_t field, int bits) {
    word_ |= std::uint64_t{field} << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8, word_ >>= 8)
      *to_++ = static_cast<std::uint8_t>(word_);
  }
  void finish() {
    if (held_ > 0) *to_ = static_cast<std::uint8_t>(word_);
  }

 private:
  std::uint8_t* to_;
  std::uint64_t word_ = 0;
  int held_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::uint8_t* from) : from_(from) {}
  std::uint32_t get(int bits) {
    for (; held_ < bits; held_ += 8) word_ |= std::uint64_t{*from_++} << held_;
    const auto field = static_cast<std::uint32_t>(word_ & ((1U << bits) - 1));
    word_ >>= bits;
    held_ -= bits;
    return field;
  }
  std::uint64_t left() const { return word_; }  ///< what is in the last byte beyond the last field

 private:
  const std::uint8_t* from_;
  std::uint64_t word_ = 0;
  int held_ = 0;
};

void check_bits(int bits, int least) {
  TW_ASSERT(bits, >=, least);
  TW_ASSERT(bits, <=, 16);
}

void check_packed(std::size_t bytes, std::size_t count, int bits) {
  const auto wanted =
      static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(count), bits));
  if (bytes != wanted)
    throw DataError(fmt::format("levels: {} fields of {} bits have {} bytes, got {}", count, bits,
                                wanted, bytes));
}

void check_end(const BitReader& reader) {
  if (reader.left() != 0) throw DataError("levels: the bits past the last field must be 0");
}

/// `at`: the number of the first element, a multiple of eight.
void pack_codes(std::size_t at, std::span<const std::int16_t> codes, int offset, int bits,
                std::uint8_t* packed) {
  packed += at / 8 * static_cast<std::size_t>(bits);
  std::size_t done = 0;
  if (bits <= 8 && simd() != Simd::scalar)
    done = pack_avx2(codes.data(), codes.size(), offset, bits, packed);
  BitWriter writer(packed + done / 8 * static_cast<std::size_t>(bits));
  for (std::size_t i = done; i < codes.size(); ++i)
    writer.put(static_cast<std::uint32_t>(codes[i] + offset), bits);
  writer.finish();
}

void encode(std::span<const float> x, const Levels& levels, const RngKey& key, int bits,
            std::span<std::uint8_t> packed, float* rest) {
  check_bits(bits, 2);
  TW_ASSERT(levels.count, <=, levels_of_bits(bits));
  TW_ASSERT(packed.size(), ==,
            static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(x.size()), bits)));
  in_blocks(x, levels, key, rest, [&](std::size_t at, std::span<const std::int16_t> codes) {
    pack_codes(at, codes, levels.count, bits, packed.data());
  });
}

}  // namespace

int bits_of_levels(std::int64_t count) {
  return std::bit_width(static_cast<std::uint64_t>(2 * count));
}

float max_abs(std::span<const float> x) {
  std::int32_t largest = 0;
  std::size_t i = simd() == Simd::scalar ? 0 : max_abs_avx2(nullptr, x.data(), x.size(), largest);
  for (; i < x.size(); ++i) largest = std::max(largest, magnitude(x[i]));
  return std::bit_cast<float>(largest);
}

float accumulate_max_abs(std::span<float> memory, std::span<const float> x) {
  TW_ASSERT(memory.size(), ==, x.size());
  std::int32_t largest = 0;
  std::size_t i =
      simd() == Simd::scalar ? 0 : max_abs_avx2(memory.data(), x.data(), x.size(), largest);
  for (; i < x.size(); ++i) largest = std::max(largest, magnitude(memory[i] += x[i]));
  return std::bit_cast<float>(largest);
}

double norm2(std::span<const float> x) {
  double lanes[kLanes] = {};
  std::size_t i = simd() == Simd::scalar ? 0 : squares_avx2(x.data(), x.size(), lanes);
  for (; i < x.size(); ++i) lanes[lane_of(i)] += double{x[i]} * double{x[i]};
  return std::sqrt(fold_lanes(lanes));
}

void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int8_t> codes) {
  round_to(x, levels, key, codes);
}
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int16_t> codes) {
  round_to(x, levels, key, codes);
}
void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int32_t> codes) {
  round_to(x, levels, key, codes);
}

void decode_codes(std::span<const std::int8_t> codes, float unit, std::span<float> out,
                  Write mode) {
  decode_from(codes, unit, out, mode);
}
void decode_codes(std::span<const std::int16_t> codes, float unit, std::span<float> out,
                  Write mode) {
  decode_from(codes, unit, out, mode);
}
void decode_codes(std::span<const std::int32_t> codes, float unit, std::span<float> out,
                  Write mode) {
  decode_from(codes, unit, out, mode);
}

void encode_levels(std::span<const float> x, Levels levels, const RngKey& key, int bits,
                   std::span<std::uint8_t> packed) {
  encode(x, levels, key, bits, packed, nullptr);
}

void encode_levels_residual(std::span<float> x, Levels levels, const RngKey& key, int bits,
                            std::span<std::uint8_t> packed) {
  encode(x, levels, key, bits, packed, x.data());
}

void decode_levels(std::span<const std::uint8_t> packed, int bits, Levels levels,
                   std::span<float> out, Write mode) {
  check_bits(bits, 2);
  check_packed(packed.size(), out.size(), bits);
  const float unit = levels.unit();
  unsigned largest = 0;
  std::size_t i = 0;
  if (bits <= 8 && simd() != Simd::scalar)
    i = decode_avx2(packed.data(), bits, levels.count, unit, out.data(), out.size(), mode, largest);
  BitReader reader(packed.data() + i / 8 * static_cast<std::size_t>(bits));
  for (; i < out.size(); ++i) {
    const unsigned field = reader.get(bits);
    largest = std::max(largest, field);
    const float value = static_cast<float>(static_cast<int>(field) - levels.count) * unit;
    out[i] = mode == Write::add ? out[i] + value : value;
  }
  check_end(reader);
  if (largest > static_cast<unsigned>(2 * levels.count))
    throw DataError(
        fmt::format("levels: a field must be at most {}, got {}", 2 * levels.count, largest));
}

void pack_fields(std::span<const std::uint16_t> fields, int bits, std::span<std::uint8_t> packed) {
  check_bits(bits, 1);
  TW_ASSERT(packed.size(), ==,
            static_cast<std::size_t>(packed_bytes(static_cast<std::int64_t>(fields.size()), bits)));
  BitWriter writer(packed.data());
  for (const std::uint16_t field : fields) writer.put(field, bits);
  writer.finish();
}

void unpack_fields(std::span<const std::uint8_t> packed, int bits,
                   std::span<std::uint16_t> fields) {
  check_bits(bits, 1);
  check_packed(packed.size(), fields.size(), bits);
  BitReader reader(packed.data());
  for (std::uint16_t& field : fields) field = static_cast<std::uint16_t>(reader.get(bits));
  check_end(reader);
}

namespace reference {

float max_abs(std::span<const float> x) {
  std::int32_t largest = 0;
  for (const float each : x) largest = std::max(largest, magnitude(each));
  return std::bit_cast<float>(largest);
}

float accumulate_max_abs(std::span<float> memory, std::span<const float> x) {
  for (std::size_t i = 0; i < x.size(); ++i) memory[i] += x[i];
  return max_abs(memory);
}

double norm2(std::span<const float> x) {
  double lanes[kLanes] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[lane_of(i)] += double{x[i]} * double{x[i]};
  return std::sqrt(fold_lanes(lanes));
}

void round_levels(std::span<const float> x, Levels levels, const RngKey& key,
                  std::span<std::int16_t> codes) {
  const Rng rng(key);
  const Rounding rounding = rounding_of(levels, rng);
  for (std::size_t at = 0; at < x.size(); at += kGroup)
    round_group(rounding, rng, at / kGroup, x.subspan(at, std::min(kGroup, x.size() - at)),
                codes.data() + at, nullptr);
}

}  // namespace reference

}  // namespace thinwire::kernels
