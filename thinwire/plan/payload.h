// SPDX-License-Identifier: Apache-2.0
// How many bytes a codec makes of a bucket, without torch: the plan predicts with these formulas
// what the codecs then lay out by them.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"
#include "thinwire/plan/maps.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

/// Bytes of one rank's payload of a bucket, proposals included, or nothing where they depend on
/// values; throws ConfigError for options that the codec refuses.
using PayloadFn = std::function<std::optional<Bytes>(const Spec&, std::span<const TensorDesc>)>;
/// What plans know of a codec.
struct PayloadFacts {
  template <class Fn>
  PayloadFacts(Fn fn) : bytes(std::move(fn)) {}  // NOLINT: most codecs say no more
  PayloadFn bytes;
  bool sums = false;  ///< the transport may add payloads (CodecTraits::summable)
};
inline PayloadFacts summed(PayloadFn bytes) {
  PayloadFacts out(std::move(bytes));
  out.sums = true;
  return out;
}
using PayloadRegistry = Registry<PayloadFacts>;
/// All codecs, with their help. Each registers here in the part of its source that needs no torch.
const PayloadRegistry& payloads();
void add_payload(const std::string& name, PayloadFn bytes, std::string help);

/// The memories of this build; a build without torch knows their names alone.
const std::vector<std::string>& memory_names();

/// Bytes of a bucket in this form, that is of its codec. Nothing: the size depends on values, or
/// this program does not know the codec. An empty form is "none".
std::optional<Bytes> payload_bytes(std::span<const Spec> form, std::span<const TensorDesc> tensors);
/// Whether payloads of this form add; false for a codec that this program does not know.
bool payload_sums(std::span<const Spec> form);
/// The slices of a bucket as tensors: a whole one keeps its shape, a part is flat.
std::vector<TensorDesc> tensors_of(const Bucket& bucket, const std::vector<TensorDesc>& tensors);

bool is_complex(DType dtype);
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

}  // namespace thinwire
