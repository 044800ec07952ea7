// SPDX-License-Identifier: Apache-2.0
// Momentum correction: accumulates momentum, and not gradients, until it is sent.
// Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for
// Distributed Training", ICLR 2018, arXiv 1712.01887.
// Update rule, g clipped to norm clip / sqrt(ranks) by tensor where asked:
//   u = beta * u + g; v += u        (nesterov: u = beta * (u + g); v += u + g)
//   send C(v); v -= C(v); masking: u = 0 where a value was sent
// Bytes: nothing of its own; keeps u, u of the step before, and v: three values an element.
// Passes over memory: one that reads u and x and writes u, one that reads u and v and writes v; the
// codec leaves in v and u what it has not sent.
// Departs from the paper: tensors of one dimension are compressed as the others of their bucket.
// The warm-up of its ratio stands with the codec: topk{ratio=0.001,warmup=...}.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

struct DgcOptions {
  double beta = 0.9;
  bool nesterov = false, masking = true;
  double clip = 0;  ///< 0: no clipping
};

class DgcMomentum : public Memory {
 public:
  DgcMomentum(const DgcOptions& options, std::span<const TensorDesc> tensors) : options_(options) {
    for (const TensorDesc& tensor : tensors) counts_.push_back(value_count(tensor));
  }

  void before(Tensor& x, const Slot& slot) override {
    if (!sum_.defined()) sum_ = at::zeros_like(x);
    if (!momentum_.defined()) momentum_ = at::zeros_like(x);
    if (!earlier_.defined()) earlier_ = at::empty_like(x);
    std::swap(momentum_, earlier_);
    accumulate(clipped(x, slot), 1);
    x = sum_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot&) override {
    if (options_.masking) sent.forget(momentum_);
    sent.residual(x, sum_);
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot& slot) override {
    sum_.add_(own);
    accumulate(clipped(x, slot), -1);  // momentum as it was before it was masked
    std::swap(momentum_, earlier_);
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.elements("momentum", momentum_);
    visitor.elements("sum", sum_);
  }

 private:
  /// momentum from what it was earlier, and sum += by times what that adds.
  void accumulate(const Tensor& g, int by) {
    if (!options_.nesterov) {
      at::add_out(momentum_, g, earlier_, options_.beta);
      sum_.add_(momentum_, by);
      return;
    }
    at::add_out(momentum_, earlier_, g);
    momentum_.mul_(options_.beta);
    sum_.add_(momentum_, by).add_(g, by);
  }
  Tensor clipped(const Tensor& x, const Slot& slot) {
    if (options_.clip == 0) return x;
    if (!clipped_.defined()) clipped_ = at::empty_like(x);
    const double most = options_.clip / std::sqrt(static_cast<double>(slot.ranks));
    std::int64_t begin = 0;
    for (const std::int64_t count : counts_) {
      const Tensor from = x.narrow(0, begin, count);
      Tensor to = clipped_.narrow(0, begin, count);
      const double norm = at::linalg_vector_norm(from).item().toDouble();
      at::mul_out(to, from, at::scalar_tensor(norm > most ? most / norm : 1.0, x.options()));
      begin += count;
    }
    return clipped_;
  }

  DgcOptions options_;
  std::vector<std::int64_t> counts_;
  Tensor momentum_, earlier_, sum_, clipped_;
};

}  // namespace

void register_dgc_momentum(MemoryRegistry& registry) {
  registry.add(
      "dgc_momentum",
      [](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        DgcOptions options{.beta = reader.number("beta", 0.9),
                           .nesterov = reader.flag("nesterov", false),
                           .masking = reader.flag("masking", true),
                           .clip = reader.number("clip", 0)};
        reader.finish();
        if (!(options.beta >= 0 && options.beta < 1))
          throw ConfigError(
              fmt::format("dgc_momentum: beta must be in [0, 1), got {}", options.beta));
        if (!(options.clip >= 0))
          throw ConfigError(
              fmt::format("dgc_momentum: clip must be at least 0, got {}", options.clip));
        return std::make_unique<DgcMomentum>(options, tensors);
      },
      "accumulates momentum until it is sent {beta=0.9, nesterov=no, masking=yes, clip=0}");
}

}  // namespace thinwire
