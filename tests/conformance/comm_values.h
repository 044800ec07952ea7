// SPDX-License-Identifier: Apache-2.0
// Values and the oracle of the comm conformance suite: element by element, in rank order, in plain
// loops that share nothing with the transports' own kernels but the conversions of the two 16-bit
// formats.
#pragma once
#include <complex>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/core/half.h"
#include "thinwire/core/rng.h"

namespace thinwire::test {

inline void require(bool good, const std::string& words) {
  if (!good) throw std::runtime_error(words);
}

/// Calls fn with a zero of the type that sums of `dtype` are computed in.
template <class Fn>
void with_type(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::f64:
      return fn(double{});
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return fn(float{});
    case DType::c64:
      return fn(std::complex<float>{});
    case DType::c128:
      return fn(std::complex<double>{});
    case DType::i64:
      return fn(std::int64_t{});
    case DType::i32:
      return fn(std::int32_t{});
    case DType::i16:
      return fn(std::int16_t{});
    case DType::i8:
      return fn(std::int8_t{});
    case DType::u8:
    case DType::bool8:
      return fn(std::uint8_t{});
  }
}

/// Typed memory that remembers its element type; guarded by a canary behind its end.
class Array {
 public:
  Array(DType dtype, std::int64_t count)
      : dtype_(dtype),
        count_(count),
        bytes_(static_cast<std::size_t>(count * dtype_bytes(dtype)) + 16, std::byte{0x5a}) {}
  Buffer buffer() { return {bytes_.data(), count_, dtype_}; }
  Buffer buffer(std::int64_t first, std::int64_t count) {
    return {bytes_.data() + first * dtype_bytes(dtype_), count, dtype_};
  }
  template <class T>
  T get(std::int64_t i) const {
    if constexpr (std::is_same_v<T, float>) {
      if (dtype_ == DType::f16 || dtype_ == DType::bf16) {
        std::uint16_t bits;
        std::memcpy(&bits, at(i), 2);
        return dtype_ == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
    }
    T out;
    std::memcpy(&out, at(i), sizeof out);
    return out;
  }
  template <class T>
  void set(std::int64_t i, T value) {
    auto* to = bytes_.data() + i * dtype_bytes(dtype_);
    if constexpr (std::is_same_v<T, float>) {
      if (dtype_ == DType::f16 || dtype_ == DType::bf16) {
        const std::uint16_t bits = dtype_ == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(to, &bits, 2);
        return;
      }
    }
    std::memcpy(to, &value, sizeof value);
  }
  bool operator==(const Array&) const = default;  // the canary too

 private:
  const std::byte* at(std::int64_t i) const { return bytes_.data() + i * dtype_bytes(dtype_); }
  DType dtype_;
  std::int64_t count_;
  std::vector<std::byte> bytes_;
};

/// Element i of `rank`. `rough` values round in every sum, so that another order shows; the others
/// are small integers.
template <class T>
T value(Rank rank, std::int64_t i, bool rough) {
  const std::int64_t whole = (i * 7 + rank * 3 + 1) % 11;
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(whole);
  else {
    const auto bits = static_cast<double>(
        ((i + 1) * 2654435761u + static_cast<std::uint64_t>(rank + 1) * 40503u) % 100003);
    const double part = rough ? bits / 100003.0 - 0.4 : static_cast<double>(whole);
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(part);
    else
      return T(static_cast<typename T::value_type>(part),
               static_cast<typename T::value_type>(whole));
  }
}

inline Array values(DType dtype, Rank rank, std::int64_t count, bool rough = false) {
  Array out(dtype, count);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) out.set<T>(i, value<T>(rank, i, rough));
  });
  return out;
}

/// Elements [first, first + count) of all ranks' values, combined in rank order.
inline Array combined(DType dtype, int ranks, std::int64_t first, std::int64_t count, Combine op,
                      bool rough = false) {
  Array out(dtype, count);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    Array one(dtype, 1);  // rounds a contribution to the element type
    for (std::int64_t i = 0; i < count; ++i) {
      T acc{};
      for (Rank r = 0; r < ranks; ++r) {
        one.set<T>(0, value<T>(r, first + i, rough));
        const T x = one.get<T>(0);
        if (r == 0)
          acc = x;
        else if (op == Combine::sum || op == Combine::mean)
          acc = static_cast<T>(acc + x);
        if constexpr (!std::is_same_v<T, std::complex<float>> &&
                      !std::is_same_v<T, std::complex<double>>) {
          if (op == Combine::max) acc = x > acc ? x : acc;
          if (op == Combine::min) acc = x < acc ? x : acc;
        }
        if constexpr (std::is_integral_v<T>) {
          if (op == Combine::bit_and) acc = static_cast<T>(acc & x);
          if (op == Combine::bit_or) acc = static_cast<T>(acc | x);
        }
      }
      if constexpr (std::is_floating_point_v<T>) {
        if (op == Combine::mean) acc = acc / static_cast<T>(ranks);
      } else if constexpr (!std::is_integral_v<T>) {
        if (op == Combine::mean) acc = acc / static_cast<typename T::value_type>(ranks);
      }
      out.set<T>(i, acc);
    }
  });
  return out;
}

}  // namespace thinwire::test
