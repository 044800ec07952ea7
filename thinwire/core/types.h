// SPDX-License-Identifier: Apache-2.0
// The words every layer shares: bytes, ranks, element types and how values from several ranks
// combine.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace thinwire {

using Bytes = std::int64_t;  // signed, so that differences are safe
using Seconds = double;
using Rank = int;
using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Element types a message may carry. `bool8` is one byte, 0 or 1.
enum class DType : std::uint8_t { f64, f32, f16, bf16, c64, c128, i64, i32, i16, i8, u8, bool8 };

/// How the contributions of several ranks become one value. `mean` divides the sum once, at the
/// end.
enum class Combine : std::uint8_t {
  sum,
  mean,
  mean_of_senders,
  max,
  min,
  bit_and,
  bit_or,
  vote,
  mix,
  concat,
  replace
};

Bytes dtype_bytes(DType dtype);                          ///< bytes of one element
std::string_view to_string(DType dtype);                 ///< "f32", ...
std::string_view to_string(Combine combine);             ///< "mean", ...
std::optional<DType> dtype_from(std::string_view text);  ///< nothing if unknown
std::optional<Combine> combine_from(std::string_view text);

/// `seconds` from now, as the deadline of a wait.
inline Deadline after(Seconds seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace thinwire
