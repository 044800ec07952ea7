// SPDX-License-Identifier: Apache-2.0
// The passes of a low-rank codec over an n x m matrix M, row-major and without gaps: P = M Q,
// Q = M^T P, and M - P Q^T. A factor holds its `rank` columns one after the other: column c of P is
// p[c * n] to p[c * n + n - 1]. Ranks up to 8 have loops of their own; greater ones take several
// passes over M. Sums have one order whatever the vector instructions:
//   P: columns of M in blocks of block_of_rank(rank); in a block, column j goes to lane j % 16,
//   lanes
//      j and j + 8 are added, then j and j + 4, and so on, and blocks are added in order;
//   Q: rows in fours, (m0 p0 + m1 p1) + (m2 p2 + m3 p3), in order, then what is left one by one;
//   P Q^T: over the columns of the factors, in order.
#pragma once
#include <cstdint>
#include <span>

#include "thinwire/codec/write.h"

namespace thinwire::kernels {

struct MatrixShape {
  std::int64_t rows = 0, columns = 0;
  std::int64_t elements() const { return rows * columns; }
};

/// Columns of M whose part of the other factor stays in the cache.
constexpr std::int64_t block_of_rank(int rank) { return 4096 / (rank < 8 ? rank : 8) / 16 * 16; }

/// memory += gradient, where one is given (else an empty span), and p = memory q, in one pass.
void accumulate_times(std::span<float> memory, std::span<const float> gradient, MatrixShape shape,
                      int rank, std::span<const float> q, std::span<float> p);

/// memory += gradient, where one is given, and q = memory^T p, in one pass.
void accumulate_transposed(std::span<float> memory, std::span<const float> gradient,
                           MatrixShape shape, int rank, std::span<const float> p,
                           std::span<float> q);
/// q = m^T p.
void transposed_times(std::span<const float> m, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<float> q);

/// In one pass: memory -= p q^T and out = or += p q^T; either may be an empty span.
void subtract_product(std::span<float> memory, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<const float> q, std::span<float> out,
                      Write mode);

/// Makes the columns of a factor orthogonal and of length 1, from the first on (Gram-Schmidt, each
/// column twice; sums in double, in 32 lanes). A column of which less than a millionth is left, one
/// of zeros for example, becomes zeros; its bit is set in the result, for the caller to draw that
/// column of the other factor anew. NaNs stay.
std::uint64_t orthonormalise(std::span<float> factor, std::int64_t length, int rank);

/// The same in plain loops.
namespace reference {
void accumulate_times(std::span<float> memory, std::span<const float> gradient, MatrixShape shape,
                      int rank, std::span<const float> q, std::span<float> p);
void accumulate_transposed(std::span<float> memory, std::span<const float> gradient,
                           MatrixShape shape, int rank, std::span<const float> p,
                           std::span<float> q);
void subtract_product(std::span<float> memory, MatrixShape shape, int rank,
                      std::span<const float> p, std::span<const float> q, std::span<float> out,
                      Write mode);
}  // namespace reference

}  // namespace thinwire::kernels
