// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/simd.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

TEST(Simd, EnvironmentChooses) {
  // What the program was started with; ctest starts it once more with THINWIRE_SIMD=scalar.
  const char* text = std::getenv("THINWIRE_SIMD");
  if (text != nullptr && std::string(text) == "scalar")
    EXPECT_EQ(simd(), Simd::scalar);
  else
    EXPECT_LE(simd(), widest_simd());
}

TEST(Simd, IsSwitchedAndNeverWiderThanTheProcessor) {
  const Simd before = simd();
  use_simd(Simd::scalar);
  EXPECT_EQ(simd(), Simd::scalar);
  use_simd(widest_simd());
  EXPECT_EQ(simd(), widest_simd());
  if (widest_simd() < Simd::avx512) {
    EXPECT_THROW(use_simd(Simd::avx512), UnsupportedError);
  }
  use_simd(before);
}

TEST(SimdDeathTest, AnotherWordIsRefused) {
  EXPECT_EXIT(
      {
        setenv("THINWIRE_SIMD", "sse9", 1);
        try {
          simd();
        } catch (const ConfigError& error) {
          std::fprintf(stderr, "%s", error.what());
          std::exit(7);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(7), "must be scalar, avx2 or avx512, got 'sse9'");
}

}  // namespace
}  // namespace thinwire::kernels
