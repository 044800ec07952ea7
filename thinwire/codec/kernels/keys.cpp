// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/keys.h"

#include <fmt/format.h>

#include <bit>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

/// Calls each(difference) for every key.
template <class Each>
void differences(std::span<const std::uint32_t> keys, Each each) {
  std::int64_t previous = -1;
  for (const std::uint32_t key : keys) {
    const std::int64_t difference = std::int64_t{key} - previous - 1;
    TW_ASSERT(difference, >=, 0);
    each(static_cast<std::uint32_t>(difference));
    previous = key;
  }
}

std::size_t width_of(const KeyWidths& widths, std::uint32_t difference) {
  std::size_t flag = 0;
  while (static_cast<int>(std::bit_width(difference)) > widths[flag]) ++flag;
  return flag;
}

class BitsOut {
 public:
  explicit BitsOut(std::vector<std::uint8_t>& out) : out_(out) {}
  void put(std::uint32_t field, int bits) {
    word_ |= std::uint64_t{field} << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8, word_ >>= 8)
      out_.push_back(static_cast<std::uint8_t>(word_));
  }
  void finish() {
    if (held_ > 0) out_.push_back(static_cast<std::uint8_t>(word_));
    word_ = 0;
    held_ = 0;
  }

 private:
  std::vector<std::uint8_t>& out_;
  std::uint64_t word_ = 0;
  int held_ = 0;
};

[[noreturn]] void refuse(const std::string& why) { throw DataError("keys: " + why); }

class BitsIn {
 public:
  explicit BitsIn(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint32_t get(int bits) {
    for (; held_ < bits; held_ += 8) {
      if (at_ == bytes_.size()) refuse("the payload ends before the last key");
      word_ |= std::uint64_t{bytes_[at_++]} << held_;
    }
    const auto field = static_cast<std::uint32_t>(word_ & ((std::uint64_t{1} << bits) - 1));
    word_ >>= bits;
    held_ -= bits;
    return field;
  }
  /// Bytes read; what is left of the last must be 0.
  std::size_t finish() const {
    if (word_ != 0) refuse("the bits past the last field must be 0");
    return at_;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t word_ = 0;
  int held_ = 0;
};

}  // namespace

KeyHistogram key_histogram(std::span<const std::uint32_t> keys) {
  KeyHistogram out{};
  differences(keys, [&](std::uint32_t d) { ++out[static_cast<std::size_t>(std::bit_width(d))]; });
  return out;
}

std::int64_t key_bits(const KeyHistogram& histogram, const KeyWidths& widths) {
  std::int64_t bits = 0;
  std::size_t flag = 0;
  for (std::size_t need = 0; need < histogram.size(); ++need) {
    while (flag < widths.size() && static_cast<int>(need) > widths[flag]) ++flag;
    if (histogram[need] == 0) continue;
    TW_ASSERT(flag, <, widths.size());
    bits += histogram[need] * (2 + widths[flag]);
  }
  return bits;
}

KeyWidths best_key_widths(const KeyHistogram& histogram) {
  std::array<std::int64_t, 33> below{};  // differences of at most so many bits
  std::int64_t all = 0;
  int last = 0;
  for (std::size_t need = 0; need < histogram.size(); ++need) {
    below[need] = all += histogram[need];
    if (histogram[need] > 0) last = static_cast<int>(need);
  }
  const auto cost = [&](int from, int to) {  // of those that need more than `from`, `to` at most
    return (below[static_cast<std::size_t>(to)] -
            (from < 0 ? 0 : below[static_cast<std::size_t>(from)])) *
           to;
  };
  KeyWidths best{last, last, last, last};
  std::int64_t least = cost(-1, last);
  for (int a = 0; a <= last; ++a)
    for (int b = a; b <= last; ++b)
      for (int c = b; c <= last; ++c) {
        const std::int64_t bits = cost(-1, a) + cost(a, b) + cost(b, c) + cost(c, last);
        if (bits >= least) continue;
        least = bits;
        best = {a, b, c, last};
      }
  return best;
}

void pack_keys(std::span<const std::uint32_t> keys, std::vector<std::uint8_t>& out) {
  const KeyWidths widths = best_key_widths(key_histogram(keys));
  for (const int width : widths) out.push_back(static_cast<std::uint8_t>(width));
  BitsOut bits(out);
  differences(
      keys, [&](std::uint32_t d) { bits.put(static_cast<std::uint32_t>(width_of(widths, d)), 2); });
  bits.finish();
  differences(keys, [&](std::uint32_t d) { bits.put(d, widths[width_of(widths, d)]); });
  bits.finish();
}

std::size_t unpack_keys(std::span<const std::uint8_t> bytes, std::int64_t n,
                        std::span<std::uint32_t> keys) {
  const std::size_t flags = (keys.size() + 3) / 4;
  if (bytes.size() < 4 + flags) refuse("the payload ends before its flags do");
  KeyWidths widths{};
  for (std::size_t i = 0; i < 4; ++i) {
    widths[i] = bytes[i];
    if (widths[i] > 32 || (i > 0 && widths[i] < widths[i - 1]))
      refuse(fmt::format("widths must rise and be at most 32, got {}", widths[i]));
  }
  BitsIn flag(bytes.subspan(4, flags)), field(bytes.subspan(4 + flags));
  std::int64_t previous = -1;
  for (std::uint32_t& key : keys) {
    previous += 1 + std::int64_t{field.get(widths[flag.get(2)])};
    if (previous >= n) refuse(fmt::format("a key must be below {}, got {}", n, previous));
    key = static_cast<std::uint32_t>(previous);
  }
  flag.finish();
  return 4 + flags + field.finish();
}

}  // namespace thinwire::kernels
