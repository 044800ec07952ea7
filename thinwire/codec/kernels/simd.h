// SPDX-License-Identifier: Apache-2.0
// Which vector instructions the kernels use. Whichever they are, the results are the same bits:
// every sum has its fixed lanes and order, which the plain loops keep to as well.
#pragma once
#include <cstdint>

namespace thinwire::kernels {

/// avx2 stands for AVX2, F16C and BMI2 together; avx512 for those and AVX-512 F, BW, DQ and VL.
enum class Simd : std::uint8_t { scalar, avx2, avx512 };

/// What kernels use: the widest that this processor and build have, or less where the environment
/// says so: THINWIRE_SIMD=scalar, avx2 or avx512, read once. ConfigError for any other word.
Simd simd();

/// The widest that this processor and build have.
Simd widest_simd();

/// From now on, in the whole process. For tests and benches; nothing may run meanwhile.
/// UnsupportedError if wider than widest_simd().
void use_simd(Simd wanted);

const char* to_string(Simd simd);

}  // namespace thinwire::kernels
