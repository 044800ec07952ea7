// SPDX-License-Identifier: Apache-2.0
// The same k values of each bucket on all ranks, drawn anew in every step; no positions travel.
// Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory" (2018); Koloskova, Stich, Jaggi (2019).
// Update rule: from each of k equal strata of the bucket one position, from (seed, exchange, step);
// send x there; value = mean of payloads there, else 0. unbiased: times n/k.
// Bytes: k values, in one all_reduce.
// Departs from the papers: one position a stratum rather than any k, so that they rise as they are
// drawn; each value is sent with the probability of its stratum's extent, about k/n.
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_randk(PayloadRegistry& registry) {
  registry.add(
      "randk", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        return selected_count(reader, spec.name, 0.01, value_count(tensors)) * value_bytes(tensors);
      }),
      "random values at positions that all ranks share {ratio=0.01, or count; unbiased=no}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <fmt/format.h>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/codec.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

class RandK : public Codec {
 public:
  RandK(std::int64_t n, std::int64_t k, bool unbiased, Bytes each)
      : n_(n), k_(k), unbiased_(unbiased), each_(each) {}
  CodecTraits traits() const override {
    return {.summable = true, .fixed_size = true, .unbiased = unbiased_};
  }
  Bytes max_bytes() const override { return k_ * each_; }

  Payload encode(const Tensor& x, const Slot& slot) override {
    draw(slot);
    if (!room_.defined()) room_ = at::empty({k_}, x.options());
    at::index_select_out(room_, x, 0, chosen_);
    if (unbiased_) room_.mul_(scales_.to(room_.scalar_type()));
    return {.parts = {room_}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const auto type = each_ == 8 ? at::kDouble : at::kFloat;
    if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != type ||
        payload.parts[0].numel() != k_)
      throw DataError(fmt::format("randk: a payload must be {} values in one part", k_));
    prepare_sum(out, n_, type, mode);
    if (k_ > 0) out.index_add_(0, chosen_, payload.parts[0].view({-1}));
  }
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (unbiased_) return Codec::residual(x, sent, out);
    if (!out.is_same(x)) out.copy_(x);
    if (k_ > 0) out.index_fill_(0, chosen_, 0);
  }

 private:
  void draw(const Slot& slot) {
    if (!chosen_.defined()) {
      chosen_ = at::empty({k_}, at::kLong);
      scales_ = at::empty({k_}, at::kDouble);
    }
    Rng rng({.seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = -1});
    auto* at = chosen_.data_ptr<std::int64_t>();
    auto* scale = scales_.data_ptr<double>();
    for (std::int64_t i = 0; i < k_; ++i) {
      const std::int64_t begin = begin_of(i), extent = begin_of(i + 1) - begin;
      at[i] = begin + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(extent)));
      scale[i] = static_cast<double>(extent);
    }
  }
  /// i n / k without its overflow.
  std::int64_t begin_of(std::int64_t i) const { return i * (n_ / k_) + i * (n_ % k_) / k_; }

  std::int64_t n_, k_;
  bool unbiased_;
  Bytes each_;
  Tensor room_, chosen_, scales_;
};

}  // namespace

void register_randk(CodecRegistry& registry) {
  registry.add("randk", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t n = value_count(tensors);
    const std::int64_t k = selected_count(reader, "randk", 0.01, n);
    const bool unbiased = reader.flag("unbiased", false);
    reader.finish();
    return std::make_unique<RandK>(n, k, unbiased, value_bytes(tensors));
  });
}

}  // namespace thinwire
#endif
