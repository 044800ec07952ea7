// SPDX-License-Identifier: Apache-2.0
// The signs of the values of largest magnitude of each tensor, and a majority vote of those who
// have sent one.
// Park, Lee, "Sparse-SignSGD with Majority Vote for Communication-Efficient Distributed Learning"
// (2023): S3GD-MV.
// Update rule, for each tensor of n values: send sign(x[i]) for the ceil(ratio n) largest |x[i]|;
// value = sign of the sum over ranks, 0 where nobody voted and on a tie. Under `ef` what was sent
// is forgotten as a whole, not by its sign: acc += g; send the signs of the largest; acc = 0 there.
// Bytes: for each tensor k positions, about log2(n/k) + 2 bits each, and k bits.
// Passes over memory: one to select; a cache line for each value sent to decode.
// Departs from the paper: votes are counted by everybody, without a server; a value of exactly 0
// that is among the largest is sent as +1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

/// n and k of each tensor with elements.
struct SparseSignPart {
  std::int64_t n = 0, k = 0;
  Bytes positions() const { return position_bytes(n, k); }
  Bytes bytes() const { return positions() + bytes_of_bits(k); }
};

std::vector<SparseSignPart> sparse_sign_parts(SpecReader& reader,
                                              std::span<const TensorDesc> tensors) {
  const double ratio = reader.number("ratio", 0.1);
  if (!(ratio > 0 && ratio <= 1))
    throw ConfigError(fmt::format("sparse_sign: ratio must be in (0, 1], got {}", ratio));
  std::vector<SparseSignPart> out;
  for (const TensorDesc& tensor : tensors) {
    const std::int64_t n = value_count(tensor);
    const auto k = static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(n)));
    if (n > 0) out.push_back({n, std::min(k, n)});
  }
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_sparse_sign(PayloadRegistry& registry) {
  registry.add(
      "sparse_sign",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        Bytes bytes = 0;
        for (const SparseSignPart& part : sparse_sign_parts(reader, tensors)) bytes += part.bytes();
        return bytes;
      },
      "the signs of the largest values of each tensor, and a vote of those sent {ratio=0.1}");
}

}  // namespace thinwire
#else
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/indices.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/codec/kernels/signs.h"

namespace thinwire {
namespace {

class SparseSign : public Codec {
 public:
  explicit SparseSign(std::vector<SparseSignPart> parts) : parts_(std::move(parts)) {
    for (const SparseSignPart& part : parts_) {
      count_ += part.n;
      bytes_ += part.bytes();
    }
  }

  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    Tensor& out = byte_room(payload_, bytes_, x);
    std::size_t begin = 0;
    Bytes at = 0;
    for (const SparseSignPart& part : parts_) {
      select_.select(floats_of(x).subspan(begin, static_cast<std::size_t>(part.n)), part.k,
                     chosen_);
      kernels::pack_indices(chosen_.indices, part.n, section(out, at, part.positions()));
      kernels::pack_signs(chosen_.values,
                          section(out, at + part.positions(), bytes_of_bits(part.k)));
      begin += static_cast<std::size_t>(part.n);
      at += part.bytes();
    }
    return {.parts = {out}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    decode_single(out, count_, mode, [&](Tensor& to, Write how) {
      if (how == Write::set) to.zero_();
      for_each(payload, [&, at = floats_in(to)](std::size_t i, float sign) { at[i] += sign; });
    });
  }

  void conclude(Tensor& sum, int) const override { sum.sign_(); }

  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (!out.is_same(x)) out.copy_(x);
    for_each(sent, [&](std::size_t i, float) {
      if (out.scalar_type() == at::kFloat)
        out.data_ptr<float>()[i] = 0;
      else
        out.data_ptr<double>()[i] = 0;
    });
  }

 private:
  /// each(position in the bucket, +1 or -1)
  template <class Each>
  void for_each(const Payload& payload, Each each) const {
    const Tensor& bytes = checked_bytes("sparse_sign", payload, bytes_);
    std::size_t begin = 0;
    Bytes at = 0;
    for (const SparseSignPart& part : parts_) {
      std::vector<std::uint32_t> indices(static_cast<std::size_t>(part.k));
      std::vector<float> signs(indices.size());
      kernels::unpack_indices(section(bytes, at, part.positions()), part.n, indices);
      kernels::decode_signs(section(bytes, at + part.positions(), bytes_of_bits(part.k)),
                            kernels::scaled_signs(1), signs, Write::set);
      for (std::size_t i = 0; i < indices.size(); ++i) each(begin + indices[i], signs[i]);
      begin += static_cast<std::size_t>(part.n);
      at += part.bytes();
    }
  }

  std::vector<SparseSignPart> parts_;
  std::int64_t count_ = 0;
  Bytes bytes_ = 0;
  Tensor payload_;
  kernels::TopK select_;
  kernels::Selection chosen_;
};

}  // namespace

void register_sparse_sign(CodecRegistry& registry) {
  registry.add("sparse_sign", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    auto parts = sparse_sign_parts(reader, tensors);
    reader.finish();
    return std::make_unique<SparseSign>(std::move(parts));
  });
}

}  // namespace thinwire
#endif
