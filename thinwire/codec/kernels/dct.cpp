// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/dct.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace thinwire::kernels {
namespace {

/// out (n x m) = a (n x k) b (k x m), the rows of b `stride` apart.
void product(const float* a, const float* b, std::int64_t stride, float* out, std::int64_t n,
             std::int64_t k, std::int64_t m) {
  std::fill(out, out + n * m, 0.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    float* __restrict row = out + i * m;
    for (std::int64_t j = 0; j < k; ++j) {
      const float by = a[i * k + j];
      const float* __restrict from = b + j * stride;
      for (std::int64_t c = 0; c < m; ++c) row[c] += by * from[c];
    }
  }
}

std::vector<float> transposed(const std::vector<float>& square, std::int64_t n) {
  std::vector<float> out(square.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      out[static_cast<std::size_t>(j * n + i)] = square[static_cast<std::size_t>(i * n + j)];
  return out;
}

}  // namespace

std::vector<float> dct_matrix(std::int64_t length) {
  std::vector<float> out(static_cast<std::size_t>(length * length));
  const auto n = static_cast<double>(length);
  for (std::int64_t k = 0; k < length; ++k)
    for (std::int64_t i = 0; i < length; ++i) {
      const double angle = std::numbers::pi * static_cast<double>((2 * i + 1) * k) / (2 * n);
      out[static_cast<std::size_t>(k * length + i)] =
          static_cast<float>(std::sqrt((k == 0 ? 1 : 2) / n) * std::cos(angle));
    }
  return out;
}

BlockDct::BlockDct(std::int64_t rows, std::int64_t columns)
    : rows_(rows),
      columns_(columns),
      over_rows_(dct_matrix(rows)),
      over_columns_(dct_matrix(columns)),
      over_columns_transposed_(transposed(over_columns_, columns)),
      over_rows_transposed_(transposed(over_rows_, rows)),
      half_(static_cast<std::size_t>(rows * columns)),
      whole_(half_.size()) {}

void BlockDct::forward(const float* block, std::int64_t stride, float* coefficients) {
  product(over_rows_.data(), block, stride, half_.data(), rows_, rows_, columns_);
  product(half_.data(), over_columns_transposed_.data(), columns_, coefficients, rows_, columns_,
          columns_);
}

void BlockDct::inverse(const float* coefficients, float* block, std::int64_t stride) {
  product(over_rows_transposed_.data(), coefficients, columns_, half_.data(), rows_, rows_,
          columns_);
  product(half_.data(), over_columns_.data(), columns_, whole_.data(), rows_, columns_, columns_);
  for (std::int64_t r = 0; r < rows_; ++r)
    std::copy_n(whole_.data() + r * columns_, columns_, block + r * stride);
}

}  // namespace thinwire::kernels
