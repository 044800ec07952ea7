// SPDX-License-Identifier: Apache-2.0
// Payloads of as many values as a rank chooses in a step, with their positions.
//   values of their own: k values of 4 bytes, then position_bytes(n, k). k follows from the length.
//                        Where 4 n bytes are no more, all n values.
//   one value for all:   k and the value, 4 bytes each, then position_bytes(n, k).
// No values: no bytes.
#pragma once
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/select.h"

namespace thinwire {

class SparsePayload {
 public:
  /// `codec`: for errors. n below 2^32.
  SparsePayload(std::string codec, std::int64_t n, bool one_value)
      : codec_(std::move(codec)), n_(n), one_value_(one_value) {}
  Bytes max_bytes() const;
  Bytes bytes(std::int64_t k) const;
  /// Of these elements of x, indices rising. With one value: each is that value.
  Payload pack(std::span<const float> x, const kernels::Selection& chosen, float value = 0);
  /// DataError for what pack() does not make. True: all n values, and no indices.
  bool unpack(const Payload& payload, kernels::Selection& out) const;
  void decode(const Payload& payload, Tensor& out, Write mode) const;
  /// How many values a payload holds; DataError.
  std::int64_t count(const Payload& payload) const;
  /// What is left of x, and x where it was not sent, of what was packed last; false: of another.
  bool residual_of_last(const Payload& sent, const Tensor& x, Tensor& out) const;
  bool forget_last(const Payload& sent, Tensor& x) const;

 private:
  bool dense(std::int64_t k) const;
  bool is_last(const Payload& payload) const;
  std::string codec_;
  std::int64_t n_;
  bool one_value_;
  Tensor room_, last_;
  std::vector<std::uint32_t> last_indices_;
  float last_value_ = 0;
  bool last_dense_ = false;
};

}  // namespace thinwire
