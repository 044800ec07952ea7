// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/sparse.h"

#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "thinwire/codec/kernels/indices.h"
#include "thinwire/core/error.h"

namespace thinwire {

bool SparsePayload::dense(std::int64_t k) const {
  return !one_value_ && k > 0 && 4 * n_ <= 4 * k + position_bytes(n_, k);
}

Bytes SparsePayload::bytes(std::int64_t k) const {
  if (k == 0) return 0;
  if (dense(k)) return 4 * n_;
  return (one_value_ ? 8 : 4 * k) + position_bytes(n_, k);
}

Bytes SparsePayload::max_bytes() const {
  return one_value_ ? 8 + bytes_of_bits(n_) : 4 * n_;  // no k has more positions than a bitmap
}

Payload SparsePayload::pack(std::span<const float> x, const kernels::Selection& chosen,
                            float value) {
  const auto k = static_cast<std::int64_t>(chosen.indices.size());
  const Bytes length = bytes(k);
  if (!room_.defined() || room_.numel() < length)
    room_ = at::empty({std::max<Bytes>(length, 64)}, at::kByte);
  last_ = room_.narrow(0, 0, length);
  last_indices_ = chosen.indices;
  last_value_ = value;
  last_dense_ = dense(k);
  if (k == 0) return {.parts = {last_}};
  Bytes begin = 8;
  if (last_dense_) {
    std::memcpy(last_.data_ptr(), x.data(), x.size_bytes());
    return {.parts = {last_}};
  }
  if (one_value_) {
    const auto count = static_cast<std::uint32_t>(k);
    std::memcpy(section(last_, 0, 4).data(), &count, 4);
    std::memcpy(section(last_, 4, 4).data(), &value, 4);
  } else {
    begin = 4 * k;
    std::memcpy(last_.data_ptr(), chosen.values.data(), static_cast<std::size_t>(begin));
  }
  kernels::pack_indices(chosen.indices, n_, section(last_, begin, length - begin));
  return {.parts = {last_}};
}

std::int64_t SparsePayload::count(const Payload& payload) const {
  const Bytes length = payload.parts.empty() ? -1 : payload.parts[0].numel();
  const Tensor& data = checked_bytes(codec_, payload, length);
  if (length == 0) return 0;
  std::int64_t k = 0;
  if (one_value_) {
    std::uint32_t announced = 0;
    if (length >= 8) std::memcpy(&announced, data.const_data_ptr(), 4);
    k = announced;
  } else if (length == 4 * n_) {
    return n_;
  } else {  // bytes of k values rise with k
    std::int64_t high = std::min(n_, length / 4);
    while (k < high) {
      const std::int64_t middle = (k + high + 1) / 2;
      if (4 * middle + position_bytes(n_, middle) <= length)
        k = middle;
      else
        high = middle - 1;
    }
  }
  if (k < 1 || k > n_ || bytes(k) != length)
    throw DataError(fmt::format("{}: no payload of {} values has {} bytes", codec_, k, length));
  return k;
}

bool SparsePayload::unpack(const Payload& payload, kernels::Selection& out) const {
  const std::int64_t k = count(payload);
  out.indices.resize(static_cast<std::size_t>(k));
  out.values.resize(static_cast<std::size_t>(k));
  if (k == 0) return false;
  const Tensor& data = payload.parts[0];
  Bytes begin = 8;
  if (one_value_) {
    float value = 0;
    std::memcpy(&value, section(data, 4, 4).data(), 4);
    if (!std::isfinite(value))
      throw DataError(fmt::format("{}: the value of a payload must be finite", codec_));
    std::fill(out.values.begin(), out.values.end(), value);
  } else {
    begin = 4 * k;
    std::memcpy(out.values.data(), data.const_data_ptr(), static_cast<std::size_t>(begin));
    if (dense(k)) {
      out.indices.clear();
      return true;
    }
  }
  kernels::unpack_indices(section(data, begin, data.numel() - begin), n_, out.indices);
  return false;
}

void SparsePayload::decode(const Payload& payload, Tensor& out, Write mode) const {
  kernels::Selection got;
  const bool whole = unpack(payload, got);
  decode_single(out, n_, mode, [&](Tensor& to, Write how) {
    if (!whole) return kernels::decode_sparse(got.indices, got.values, floats_in(to), how);
    const auto values = floats_in(to);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = how == Write::set ? got.values[i] : values[i] + got.values[i];
  });
}

bool SparsePayload::is_last(const Payload& payload) const {
  return last_.defined() && payload.parts.size() == 1 &&
         payload.parts[0].data_ptr() == last_.data_ptr() &&
         payload.parts[0].numel() == last_.numel();
}

bool SparsePayload::residual_of_last(const Payload& sent, const Tensor& x, Tensor& out) const {
  if (!is_last(sent) || x.scalar_type() != at::kFloat) return false;
  if (last_dense_) {
    out.zero_();
    return true;
  }
  if (!out.is_same(x)) out.copy_(x);
  if (!one_value_) {
    kernels::zero_at(floats_in(out), last_indices_);
    return true;
  }
  const auto values = floats_in(out);
  for (const std::uint32_t i : last_indices_) values[i] -= last_value_;
  return true;
}

bool SparsePayload::forget_last(const Payload& sent, Tensor& x) const {
  if (!is_last(sent) || x.scalar_type() != at::kFloat) return false;
  if (last_dense_)
    x.zero_();
  else
    kernels::zero_at(floats_in(x), last_indices_);
  return true;
}

}  // namespace thinwire
