// SPDX-License-Identifier: Apache-2.0
// How many bytes a codec makes of a bucket, without torch: the plan predicts with these formulas
// what the codecs then lay out by them.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/maps.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// Bytes of one rank's payload of a bucket; throws ConfigError for options that the codec refuses.
using PayloadFn = std::function<Bytes(const Spec&, std::span<const TensorDesc>)>;
using PayloadRegistry = Registry<PayloadFn>;
/// Of the codecs whose payload has the same size in every step.
const PayloadRegistry& payloads();
void add_payload(const std::string& name, PayloadFn bytes);

/// Bytes of a bucket in this form, that is of its codec. Nothing: the size depends on values, or
/// nobody has said. An empty form is "none".
std::optional<Bytes> payload_bytes(std::span<const Spec> form, std::span<const TensorDesc> tensors);
/// The slices of a bucket as tensors: a whole one keeps its shape, a part is flat.
std::vector<TensorDesc> tensors_of(const Bucket& bucket, const std::vector<TensorDesc>& tensors);

/// Codecs see flat real values: a complex number is two.
std::int64_t value_count(const TensorDesc& tensor);
std::int64_t value_count(std::span<const TensorDesc> tensors);
/// 8 where the bucket has double precision, else 4: halves are encoded in single precision.
Bytes value_bytes(std::span<const TensorDesc> tensors);
inline Bytes bytes_of_bits(std::int64_t bits) { return (bits + 7) / 8; }

/// k of "ratio" (default) or "count": max(1, floor(ratio n)), or min(count, n); 0 of nothing.
/// ConfigError where both are given, or one is out of range.
std::int64_t selected_count(SpecReader& reader, const std::string& codec, double ratio,
                            std::int64_t n);

/// Bytes of k rising positions below n, in the formats of codec/kernels/indices.h: one bit a value,
/// or by Elias and Fano (l low bits of each position, then the rest in unary), whichever is
/// shorter; the same for all positions.
Bytes position_bytes(std::int64_t n, std::int64_t k);

/// A tensor as powersgd sends it: a matrix of `rows` times `columns` in two factors of `rank`
/// columns, or dense (rank 0) where the factors are no smaller.
struct LowRank {
  std::int64_t rows = 0, columns = 0, rank = 0;
};
LowRank low_rank_of(const TensorDesc& tensor, std::int64_t rank, double gain);

}  // namespace thinwire
