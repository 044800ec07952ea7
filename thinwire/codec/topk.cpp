// SPDX-License-Identifier: Apache-2.0
// The k values of largest magnitude in a bucket, with their positions.
// Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory" (2018); Lin, Han, Mao, Wang, Dally, "Deep
// Gradient Compression" (2018).
// Update rule: send x[i] for the k largest |x[i]|; of equal ones those that come first.
// Bytes: k values (4, or 8 in double precision), then their positions as PositionCode lays them
// out, about log2(n/k) + 2 bits each: the same for all inputs. Dense where that is no longer.
// Departs from the papers: the selection is exact, and over a bucket rather than a layer.
#include <algorithm>

#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {
/// k changes from step to step.
bool topk_varies(const Spec& spec) {
  const auto ratio = spec.params.find("ratio");
  return spec.params.contains("warmup") ||
         (ratio != spec.params.end() && ratio->second == "adaptive");
}
}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_topk(PayloadRegistry& registry) {
  registry.add(
      "topk",
      [](const Spec& spec, std::span<const TensorDesc> tensors) -> std::optional<Bytes> {
        SpecReader reader(spec);
        const std::int64_t n = value_count(tensors);
        if (topk_varies(spec)) return std::nullopt;
        const std::int64_t k = selected_count(reader, spec.name, 0.01, n);
        const Bytes each = value_bytes(tensors);
        return std::min(n * each, k * each + position_bytes(n, k));
      },
      "the values of largest magnitude and their positions {ratio=0.01, or count; warmup=steps; or "
      "ratio=adaptive, mean=0.01, window=100}");
}

}  // namespace thinwire
#else
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>

#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/indices.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// The same in double precision, which has no kernel.
void select(const Tensor& x, std::int64_t k, std::vector<std::uint32_t>& indices) {
  const Tensor size = x.abs();
  const Tensor least = std::get<0>(size.topk(k, 0, true, false)).min();
  const Tensor above = size.gt(least).nonzero().view({-1});
  const Tensor equal = size.eq(least).nonzero().view({-1});
  const Tensor chosen = std::get<0>(at::cat({above, equal.narrow(0, 0, k - above.numel())}).sort());
  const auto* from = chosen.const_data_ptr<std::int64_t>();
  indices.assign(from, from + k);
}

class TopK : public Codec {
 public:
  TopK(std::int64_t n, std::int64_t k, Bytes each)
      : n_(n),
        k_(k),
        each_(each),
        positions_(position_bytes(n, k)),
        dense_(n * each <= k * each + positions_) {
    TW_ASSERT(positions_, ==, kernels::index_bytes(n, k));
  }

  CodecTraits traits() const override {
    const double share = static_cast<double>(k_) / static_cast<double>(n_);
    return {
        .fixed_size = true, .contraction = dense_ ? 1.0 : share, .joins = !dense_ && each_ == 4};
  }
  Bytes max_bytes() const override { return dense_ ? n_ * each_ : k_ * each_ + positions_; }

  Payload encode(const Tensor& x, const Slot&) override {
    Tensor& out = byte_room(payload_, max_bytes(), x);
    if (dense_) {
      copy_values(x.const_data_ptr(), n_, out);
      return {.parts = {out}};
    }
    if (each_ == 4) {
      select_.select(floats_of(x), k_, chosen_);
      copy_values(chosen_.values.data(), k_, out);
    } else {
      select(x, k_, chosen_.indices);
      std::vector<double> values;
      const auto* from = x.const_data_ptr<double>();
      for (const std::uint32_t i : chosen_.indices) values.push_back(from[i]);
      copy_values(values.data(), k_, out);
    }
    kernels::pack_indices(chosen_.indices, n_, section(out, k_ * each_, positions_));
    return {.parts = {out}};
  }

  /// One pass: sums are selected from, and the k largest are not written back.
  Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) override {
    if (dense_ || each_ != 4 || !x.defined()) return Codec::encode_rest(sum, x, slot);
    Tensor& out = byte_room(payload_, max_bytes(), sum);
    select_.take(floats_in(sum), floats_of(x), k_, chosen_);
    copy_values(chosen_.values.data(), k_, out);
    kernels::pack_indices(chosen_.indices, n_, section(out, k_ * each_, positions_));
    return {.parts = {out}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor& bytes = checked_bytes("topk", payload, max_bytes());
    const at::ScalarType type = each_ == 8 ? at::kDouble : at::kFloat;
    const Tensor values = at::empty({dense_ ? n_ : k_}, type);
    if (values.numel() > 0) std::memcpy(values.data_ptr(), bytes.const_data_ptr(), values.nbytes());
    if (dense_) {
      prepare_sum(out, n_, type, mode);
      out.add_(values);
      return;
    }
    std::vector<std::uint32_t> indices(static_cast<std::size_t>(k_));
    kernels::unpack_indices(section(bytes, k_ * each_, positions_), n_, indices);
    if (!out.defined()) out = at::empty({n_}, type);
    if (each_ == 4) return kernels::decode_sparse(indices, floats_of(values), floats_in(out), mode);
    if (mode == Write::set) out.zero_();
    auto* to = out.data_ptr<double>();
    const auto* from = values.const_data_ptr<double>();
    for (std::size_t i = 0; i < indices.size(); ++i) to[indices[i]] += from[i];
  }

  /// Of what was encoded last: nothing but the values that were sent is touched.
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (dense_) {
      out.zero_();
      return;
    }
    const bool last = payload_.defined() && sent.parts.at(0).is_same(payload_);
    if (!last) return Codec::residual(x, sent, out);
    if (!out.is_same(x)) out.copy_(x);
    if (each_ == 4) return kernels::zero_at(floats_in(out), chosen_.indices);
    auto* to = out.data_ptr<double>();
    for (const std::uint32_t i : chosen_.indices) to[i] = 0;
  }
  void forget(const Payload& sent, Tensor& x) const override {
    const bool last = payload_.defined() && sent.parts.at(0).is_same(payload_);
    dense_ || last ? residual(x, sent, x) : Codec::forget(sent, x);
  }

 private:
  void copy_values(const void* from, std::int64_t count, const Tensor& to) const {
    if (count > 0) std::memcpy(to.data_ptr(), from, static_cast<std::size_t>(count * each_));
  }

  std::int64_t n_, k_;
  Bytes each_, positions_;
  bool dense_;
  Tensor payload_;
  kernels::TopK select_;
  kernels::Selection chosen_;  ///< of what was encoded last
};

}  // namespace

std::unique_ptr<Codec> make_varying_topk(const Spec& spec, std::span<const TensorDesc> tensors);

void register_topk(CodecRegistry& registry) {
  registry.add("topk",
               [](const Spec& spec, std::span<const TensorDesc> tensors) -> std::unique_ptr<Codec> {
                 if (topk_varies(spec)) return make_varying_topk(spec, tensors);
                 SpecReader reader(spec);
                 const std::int64_t n = value_count(tensors);
                 const std::int64_t k = selected_count(reader, "topk", 0.01, n);
                 reader.finish();
                 return std::make_unique<TopK>(n, k, value_bytes(tensors));
               });
}

}  // namespace thinwire
#endif
