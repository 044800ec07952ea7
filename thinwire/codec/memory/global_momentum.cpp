// SPDX-License-Identifier: Apache-2.0
// Global momentum: error feedback of what all ranks have moved together.
// Shi, Zhao, Xie, Gao, Li, "Global Momentum Compression for Sparse Communication in Distributed
// Learning" (2019), arXiv 1905.12948.
// Update rule, d the mean of what all ranks sent in the step before:
//   a = e + x + beta * d; send C(a); e = a - C(a)
// Without a codec d is the momentum of SGD. Where parameters step by -eta d, (w(t-1) - w(t)) / eta
// of the paper is d, so parameters need not be read.
// Bytes: nothing of its own; keeps e and d, two values an element. Passes over memory: two, e += x
// and e += beta * d, and one that copies what comes back into d.
// Departs from the paper: where eta changes, d keeps its size and not the displacement, as the
// momentum of optimizers does. Use it with an optimizer without momentum.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <fmt/format.h>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class GlobalMomentum : public Memory {
 public:
  explicit GlobalMomentum(double beta) : beta_(beta) {}

  void before(Tensor& x, const Slot&) override {
    if (error_.defined())
      error_.add_(x);
    else
      error_ = x.clone();
    if (moved_.defined()) error_.add_(moved_, beta_);
    x = error_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot&) override { sent.residual(x, error_); }
  void received(Tensor& value, Rank from, const Slot&) override {
    if (from != kCombined) return;
    if (moved_.defined())
      moved_.copy_(value);
    else
      moved_ = value.to(error_.scalar_type(), false, true);
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot&) override {
    error_.add_(own).sub_(x);
    if (moved_.defined()) error_.sub_(moved_, beta_);
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.elements("error", error_);
    visitor.shared_elements("moved", moved_);
  }

 private:
  double beta_;
  Tensor error_;  ///< between before() and sent(): what is to be sent
  Tensor moved_;
};

}  // namespace

void register_global_momentum(MemoryRegistry& registry) {
  registry.add(
      "global_momentum",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double beta = reader.number("beta", 0.9);
        reader.finish();
        if (!(beta >= 0 && beta < 1))
          throw ConfigError(fmt::format("global_momentum: beta must be in [0, 1), got {}", beta));
        return std::make_unique<GlobalMomentum>(beta);
      },
      "error feedback with the momentum of what all ranks have sent together {beta=0.9}");
}

}  // namespace thinwire
