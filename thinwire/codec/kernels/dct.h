// SPDX-License-Identifier: Apache-2.0
// The orthonormal cosine transform (DCT-II) of blocks, in two dimensions one after the other. Plain
// loops of one order of sums.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire::kernels {

/// Rows of the orthonormal DCT-II of this length: row k is frequency k.
std::vector<float> dct_matrix(std::int64_t length);

/// Of blocks of rows x columns. Not to be used by two threads at once.
class BlockDct {
 public:
  BlockDct(std::int64_t rows, std::int64_t columns);
  /// A block of a matrix whose rows are `stride` apart, to rows * columns coefficients.
  void forward(const float* block, std::int64_t stride, float* coefficients);
  /// The inverse; writes the block.
  void inverse(const float* coefficients, float* block, std::int64_t stride);

 private:
  std::int64_t rows_, columns_;
  std::vector<float> over_rows_, over_columns_, over_columns_transposed_, over_rows_transposed_;
  std::vector<float> half_, whole_;
};

}  // namespace thinwire::kernels
