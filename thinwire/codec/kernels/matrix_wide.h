// SPDX-License-Identifier: Apache-2.0
// Internal to kernels: the passes of matrix.h in vector code, for up to eight columns of the
// factors.
#pragma once
#include <cstdint>

#include "thinwire/codec/kernels/matrix.h"

namespace thinwire::kernels {

inline constexpr int kMostColumns = 8;

/// What a pass needs. Column c of p begins at p + c * rows, of q at q + c * columns.
struct MatrixJob {
  float* memory = nullptr;          ///< M; null where a product is only decoded
  const float* gradient = nullptr;  ///< null: nothing to accumulate
  float* out = nullptr;
  float* p = nullptr;
  float* q = nullptr;
  std::int64_t rows = 0, columns = 0, block = 0;
  int rank = 0;
  Write mode = Write::set;

  /// Whether an output that is written only goes past the caches, which saves reading it first: if
  /// it would not stay in most of them anyway, and its rows are long.
  bool streams() const { return columns >= 256 && rows * columns >= (std::int64_t{1} << 20); }
};

namespace avx2 {
void times(const MatrixJob& job);
void transposed_times(const MatrixJob& job);
void subtract_product(const MatrixJob& job);
}  // namespace avx2

namespace avx512 {
void times(const MatrixJob& job);
void transposed_times(const MatrixJob& job);
void subtract_product(const MatrixJob& job);
}  // namespace avx512

}  // namespace thinwire::kernels
