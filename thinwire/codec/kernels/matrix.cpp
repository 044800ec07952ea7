// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/kernels/matrix.h"

#include <algorithm>
#include <cmath>

#include "thinwire/codec/kernels/lanes.h"
#include "thinwire/codec/kernels/matrix_wide.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace thinwire::kernels {
namespace {

using Size = std::int64_t;

constexpr Size kProductBlock = 65536;  // floats of Q, of which a larger cache holds all

Size length(std::span<const float> x) { return static_cast<Size>(x.size()); }

void check_factors(MatrixShape shape, int rank, std::span<const float> p,
                   std::span<const float> q) {
  TW_ASSERT(rank, >=, 1);
  TW_ASSERT(length(p), ==, rank * shape.rows);
  TW_ASSERT(length(q), ==, rank * shape.columns);
}

void check_matrix(std::span<const float> m, MatrixShape shape, bool may_be_empty) {
  if (!may_be_empty || !m.empty()) TW_ASSERT(length(m), ==, shape.elements());
}

/// The part of a job that concerns columns [first, first + 8) of the factors.
MatrixJob part_of(MatrixJob job, int first) {
  job.p += first * job.rows;
  job.q += first * job.columns;
  job.rank = std::min(kMostColumns, job.rank - first);
  if (first > 0) job.gradient = nullptr;
  return job;
}

float* writable(std::span<const float> x) { return const_cast<float*>(x.data()); }  // not written

constexpr std::size_t kRowLanes = 16;  // of P's sums

float fold(float (&lanes)[kRowLanes]) {
  for (std::size_t half = kRowLanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

double dot(const float* a, const float* b, Size count) {
  double lanes[kLanes] = {};
  Size i = 0;
  for (; i + static_cast<Size>(kLanes) <= count; i += kLanes)
    for (std::size_t j = 0; j < kLanes; ++j)
      lanes[j] += double{a[i + static_cast<Size>(j)]} * double{b[i + static_cast<Size>(j)]};
  for (std::size_t j = 0; i < count; ++i, ++j) lanes[j] += double{a[i]} * double{b[i]};
  return fold_lanes(lanes);
}

/// Takes from `column` what lies in the columns before it.
void project_out(const float* factor, float* column, Size count, int before) {
  for (int d = 0; d < before; ++d) {
    const float* other = factor + d * count;
    const double along = dot(other, column, count);
    for (Size i = 0; i < count; ++i)
      column[i] = static_cast<float>(column[i] - along * double{other[i]});
  }
}

}  // namespace

void accumulate_times(std::span<float> memory, std::span<const float> gradient, MatrixShape shape,
                      int rank, std::span<const float> q, std::span<float> p) {
  if (simd() == Simd::scalar)
    return reference::accumulate_times(memory, gradient, shape, rank, q, p);
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, false);
  check_matrix(gradient, shape, true);
  std::fill(p.begin(), p.end(), 0.0F);
  const MatrixJob job{.memory = memory.data(),
                      .gradient = gradient.empty() ? nullptr : gradient.data(),
                      .p = p.data(),
                      .q = writable(q),
                      .rows = shape.rows,
                      .columns = shape.columns,
                      .block = block_of_rank(rank),
                      .rank = rank};
  for (int first = 0; first < rank; first += kMostColumns) {
    const MatrixJob part = part_of(job, first);
    simd() == Simd::avx512 ? avx512::times(part) : avx2::times(part);
  }
}

void accumulate_transposed(std::span<float> memory, std::span<const float> gradient,
                           MatrixShape shape, int rank, std::span<const float> p,
                           std::span<float> q) {
  if (simd() == Simd::scalar)
    return reference::accumulate_transposed(memory, gradient, shape, rank, p, q);
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, false);
  check_matrix(gradient, shape, true);
  std::fill(q.begin(), q.end(), 0.0F);
  const MatrixJob job{.memory = memory.data(),
                      .gradient = gradient.empty() ? nullptr : gradient.data(),
                      .p = writable(p),
                      .q = q.data(),
                      .rows = shape.rows,
                      .columns = shape.columns,
                      .block = block_of_rank(rank),
                      .rank = rank};
  for (int first = 0; first < rank; first += kMostColumns) {
    const MatrixJob part = part_of(job, first);
    simd() == Simd::avx512 ? avx512::transposed_times(part) : avx2::transposed_times(part);
  }
}

void transposed_times(std::span<const float> m, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<float> q) {
  accumulate_transposed({writable(m), m.size()}, {}, shape, rank, p, q);
}

void subtract_product(std::span<float> memory, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<const float> q, std::span<float> out,
                      Write mode) {
  if (simd() == Simd::scalar)
    return reference::subtract_product(memory, shape, rank, p, q, out, mode);
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, true);
  check_matrix(out, shape, true);
  if (memory.empty() && out.empty()) return;
  const MatrixJob job{.memory = memory.empty() ? nullptr : memory.data(),
                      .out = out.empty() ? nullptr : out.data(),
                      .p = writable(p),
                      .q = writable(q),
                      .rows = shape.rows,
                      .columns = shape.columns,
                      .block = kProductBlock / rank,
                      .rank = rank,
                      .mode = mode};
  simd() == Simd::avx512 ? avx512::subtract_product(job) : avx2::subtract_product(job);
}

std::uint64_t orthonormalise(std::span<float> factor, std::int64_t count, int rank) {
  constexpr double kLeft = 1e-6;
  TW_ASSERT(length(factor), ==, rank * count);
  TW_ASSERT(rank, <=, 64);
  std::uint64_t zeros = 0;
  for (int c = 0; c < rank; ++c) {
    float* column = factor.data() + c * count;
    const double before = std::sqrt(dot(column, column, count));
    project_out(factor.data(), column, count, c);
    double after = std::sqrt(dot(column, column, count));
    if (after <= kLeft * before) {
      std::fill(column, column + count, 0.0F);
      zeros |= std::uint64_t{1} << c;
      continue;
    }
    // What rounding left of the other columns is a greater part of a column that became short.
    for (int again = 0; again < 2; ++again) {
      for (Size i = 0; i < count; ++i) column[i] = static_cast<float>(column[i] / after);
      if (again == 1) break;
      project_out(factor.data(), column, count, c);
      after = std::sqrt(dot(column, column, count));
    }
  }
  return zeros;
}

namespace reference {

void accumulate_times(std::span<float> memory, std::span<const float> gradient, MatrixShape shape,
                      int rank, std::span<const float> q, std::span<float> p) {
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, false);
  check_matrix(gradient, shape, true);
  for (std::size_t i = 0; i < gradient.size(); ++i) memory[i] += gradient[i];
  std::fill(p.begin(), p.end(), 0.0F);
  const Size block = block_of_rank(rank);
  for (int c = 0; c < rank; ++c)
    for (Size i = 0; i < shape.rows; ++i)
      for (Size begin = 0; begin < shape.columns; begin += block) {
        float lanes[kRowLanes] = {};
        for (Size j = begin; j < std::min(begin + block, shape.columns); ++j)
          lanes[static_cast<std::size_t>(j - begin) % kRowLanes] +=
              memory.data()[i * shape.columns + j] * q.data()[c * shape.columns + j];
        float& sum = p.data()[c * shape.rows + i];
        sum = begin == 0 ? fold(lanes) : sum + fold(lanes);
      }
}

void accumulate_transposed(std::span<float> memory, std::span<const float> gradient,
                           MatrixShape shape, int rank, std::span<const float> p,
                           std::span<float> q) {
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, false);
  check_matrix(gradient, shape, true);
  for (std::size_t i = 0; i < gradient.size(); ++i) memory[i] += gradient[i];
  for (int c = 0; c < rank; ++c)
    for (Size j = 0; j < shape.columns; ++j) {
      float sum = 0;
      const auto term = [&](Size i) {
        return memory.data()[i * shape.columns + j] * p.data()[c * shape.rows + i];
      };
      Size i = 0;
      for (; i + 4 <= shape.rows; i += 4)
        sum += (term(i) + term(i + 1)) + (term(i + 2) + term(i + 3));
      for (; i < shape.rows; ++i) sum += term(i);
      q.data()[c * shape.columns + j] = sum;
    }
}

void subtract_product(std::span<float> memory, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<const float> q, std::span<float> out,
                      Write mode) {
  check_factors(shape, rank, p, q);
  check_matrix(memory, shape, true);
  check_matrix(out, shape, true);
  for (Size i = 0; i < shape.rows; ++i)
    for (Size j = 0; j < shape.columns; ++j) {
      float value = q.data()[j] * p.data()[i];
      for (int c = 1; c < rank; ++c)
        value += q.data()[c * shape.columns + j] * p.data()[c * shape.rows + i];
      const Size at = i * shape.columns + j;
      if (!memory.empty()) memory.data()[at] -= value;
      if (!out.empty()) out.data()[at] = mode == Write::add ? out.data()[at] + value : value;
    }
}

}  // namespace reference

}  // namespace thinwire::kernels
