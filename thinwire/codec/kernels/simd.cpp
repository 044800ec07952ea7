// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/simd.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "thinwire/codec/kernels/wide.h"
#include "thinwire/core/error.h"
#if TW_WIDE
#include <cpuid.h>
#endif

namespace thinwire::kernels {
namespace {

constexpr Simd kAll[] = {Simd::scalar, Simd::avx2, Simd::avx512};

#if TW_WIDE
// Not every compiler that can make F16C's instructions knows it by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

Simd find_widest() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !has_f16c())
    return Simd::scalar;
  const bool wider = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wider ? Simd::avx512 : Simd::avx2;
}
#else
Simd find_widest() { return Simd::scalar; }
#endif

Simd first_choice() {
  const char* text = std::getenv("THINWIRE_SIMD");
  if (text == nullptr || *text == 0) return widest_simd();
  for (const Simd each : kAll)
    if (std::string_view(text) == to_string(each)) return std::min(each, widest_simd());
  throw ConfigError(fmt::format("THINWIRE_SIMD: must be scalar, avx2 or avx512, got '{}'", text));
}

std::atomic<Simd>& chosen() {
  static std::atomic<Simd> value{first_choice()};
  return value;
}

}  // namespace

Simd widest_simd() {
  static const Simd found = find_widest();
  return found;
}

Simd simd() { return chosen().load(std::memory_order_relaxed); }

void use_simd(Simd wanted) {
  if (wanted > widest_simd())
    throw UnsupportedError(fmt::format("vector instructions: this processor has {}, not {}",
                                       to_string(widest_simd()), to_string(wanted)));
  chosen() = wanted;
}

const char* to_string(Simd simd) {
  switch (simd) {
    case Simd::avx2:
      return "avx2";
    case Simd::avx512:
      return "avx512";
    default:
      return "scalar";
  }
}

}  // namespace thinwire::kernels
