// SPDX-License-Identifier: Apache-2.0
// Blocks of accumulators on the stack: every part is read once, in rank order, in loops that the
// compiler turns into vector code, and `out` is written only after all parts of the block are read.
#include "thinwire/comm/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "thinwire/comm/reduce_avx2.h"
#include "thinwire/core/error.h"
#include "thinwire/core/half.h"

namespace thinwire {
namespace {

constexpr std::int64_t kBlock = 1024;

template <class T>
constexpr bool kComplex = false;
template <class T>
constexpr bool kComplex<std::complex<T>> = true;

// Signed sums wrap, as on every machine that PyTorch runs on; unsigned arithmetic says so.
template <class T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}
// A NaN of any rank stays a NaN.
template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}
template <class T>
T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}

template <class T>
void fold(T* acc, const T* part, std::int64_t count, Combine op) {
  const auto each = [&](auto fn) {
    for (std::int64_t i = 0; i < count; ++i) acc[i] = fn(acc[i], part[i]);
  };
  if (op == Combine::sum || op == Combine::mean) return each([](T a, T b) { return plus(a, b); });
  if constexpr (!kComplex<T>) {
    if (op == Combine::max) return each([](T a, T b) { return larger(a, b); });
    if (op == Combine::min) return each([](T a, T b) { return smaller(a, b); });
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Combine::bit_and) return each([](T a, T b) { return static_cast<T>(a & b); });
    if (op == Combine::bit_or) return each([](T a, T b) { return static_cast<T>(a | b); });
  }
}

template <class T>
void finish_mean(T* acc, std::int64_t count, std::size_t ranks) {
  if constexpr (kComplex<T>) {
    const auto n = static_cast<typename T::value_type>(ranks);
    for (std::int64_t i = 0; i < count; ++i) acc[i] /= n;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto n = static_cast<T>(ranks);
    for (std::int64_t i = 0; i < count; ++i) acc[i] /= n;
  }
}

/// Acc is the type of the sum, Stored the type in memory; load and store convert.
template <class Acc, class Stored, class Load, class Store>
void combine_as(void* out, std::span<const void* const> parts, std::int64_t count, Combine op,
                Load load, Store store) {
  Acc acc[kBlock], next[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, count - at);
    load(acc, static_cast<const Stored*>(parts[0]) + at, n);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      load(next, static_cast<const Stored*>(parts[r]) + at, n);
      fold(acc, next, n, op);
    }
    if (op == Combine::mean) finish_mean(acc, n, parts.size());
    store(static_cast<Stored*>(out) + at, acc, n);
  }
}

template <class T>
void combine_as_is(void* out, std::span<const void* const> parts, std::int64_t count, Combine op) {
  T acc[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, count - at);
    const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
    std::memcpy(acc, static_cast<const T*>(parts[0]) + at, bytes);
    for (std::size_t r = 1; r < parts.size(); ++r)
      fold(acc, static_cast<const T*>(parts[r]) + at, n, op);
    if (op == Combine::mean) finish_mean(acc, n, parts.size());
    std::memcpy(static_cast<T*>(out) + at, acc, bytes);
  }
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Narrow)(float)>
void combine_half(void* out, std::span<const void* const> parts, std::int64_t count, Combine op) {
  combine_as<float, std::uint16_t>(
      out, parts, count, op,
      [](float* to, const std::uint16_t* from, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = Widen(from[i]);
      },
      [](std::uint16_t* to, const float* from, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = Narrow(from[i]);
      });
}

}  // namespace

void move_bytes(void* to, const void* from, Bytes bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void check_combine(DType dtype, Combine op) {
  const bool complex = dtype == DType::c64 || dtype == DType::c128;
  const bool floating = dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 ||
                        dtype == DType::bf16 || complex;
  const bool truth = dtype == DType::bool8;
  const auto sensible = [&] {
    switch (op) {
      case Combine::sum:
        return !truth;
      case Combine::mean:
        return floating;
      case Combine::max:
      case Combine::min:
        return !complex;
      case Combine::bit_and:
      case Combine::bit_or:
        return !floating;
      default:
        return false;
    }
  };
  if (!sensible())
    throw UnsupportedError(
        fmt::format("combine: {} cannot be combined by {}", to_string(dtype), to_string(op)));
}

void combine(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
             Combine op) {
  check_combine(dtype, op);
  if (parts.empty() || count == 0) return;
  const bool adds = op == Combine::sum || op == Combine::mean;
  if (!adds || !sum_avx2(out, parts, count, dtype, op == Combine::mean))
    combine_plainly(out, parts, count, dtype, op);
}

void combine_plainly(void* out, std::span<const void* const> parts, std::int64_t count, DType dtype,
                     Combine op) {
  switch (dtype) {
    case DType::f64:
      return combine_as_is<double>(out, parts, count, op);
    case DType::f32:
      return combine_as_is<float>(out, parts, count, op);
    case DType::f16:
      return combine_half<f16_to_f32, f32_to_f16>(out, parts, count, op);
    case DType::bf16:
      return combine_half<bf16_to_f32, f32_to_bf16>(out, parts, count, op);
    case DType::c64:
      return combine_as_is<std::complex<float>>(out, parts, count, op);
    case DType::c128:
      return combine_as_is<std::complex<double>>(out, parts, count, op);
    case DType::i64:
      return combine_as_is<std::int64_t>(out, parts, count, op);
    case DType::i32:
      return combine_as_is<std::int32_t>(out, parts, count, op);
    case DType::i16:
      return combine_as_is<std::int16_t>(out, parts, count, op);
    case DType::i8:
      return combine_as_is<std::int8_t>(out, parts, count, op);
    case DType::u8:
    case DType::bool8:
      return combine_as_is<std::uint8_t>(out, parts, count, op);
  }
}

}  // namespace thinwire
