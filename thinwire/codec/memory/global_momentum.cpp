// SPDX-License-Identifier: Apache-2.0
// Global momentum: error feedback of what all ranks have moved together.
// Shi, Zhao, Xie, Gao, Li, "Global Momentum Compression for Sparse Communication in Distributed
// Learning" (2019), arXiv 1905.12948.
// Update rule, d the mean of what all ranks sent in the step before:
//   a = e + x + beta * d; send C(a); e = a - C(a)
// detach=lambda (GMC+: Xu, Huang, "Detached Error Feedback for Distributed SGD with Random
// Sparsification", ICML 2022): gradients at w - lambda * eta * e. What comes out
// on a rank is d + lambda * (e now - e before), so that its parameters stand there, for a constant
// eta; w of all ranks is the mean of their parameters plus lambda * eta * (mean of e).
// Without a codec d is the momentum of SGD. Where parameters step by -eta d, (w(t-1) - w(t)) / eta
// of the paper is d, so parameters need not be read.
// Bytes: nothing of its own; keeps e and d, two values an element, and with detach e as it was.
// Passes over memory: two, e += x and e += beta * d, and one that copies what comes back into d;
// with detach three more.
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
  GlobalMomentum(double beta, double detach) : beta_(beta), detach_(detach) {}

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
    if (detach_ == 0 || !error_.defined()) return;
    value.add_(error_, detach_);
    if (shifted_.defined()) {
      value.sub_(shifted_, detach_);
      shifted_.copy_(error_);
    } else {
      shifted_ = error_.clone();
    }
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot&) override {
    error_.add_(own).sub_(x);
    if (moved_.defined()) error_.sub_(moved_, beta_);
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.elements("error", error_);
    visitor.shared_elements("moved", moved_);
    if (detach_ != 0) visitor.elements("shifted", shifted_);
  }

 private:
  double beta_, detach_;
  Tensor error_;  ///< between before() and sent(): what is to be sent
  Tensor moved_;
  Tensor shifted_;  ///< the error by which this rank's parameters are off
};

}  // namespace

void register_global_momentum(MemoryRegistry& registry) {
  registry.add(
      "global_momentum",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double beta = reader.number("beta", 0.9), detach = reader.number("detach", 0);
        reader.finish();
        if (!(beta >= 0 && beta < 1))
          throw ConfigError(fmt::format("global_momentum: beta must be in [0, 1), got {}", beta));
        if (!(detach >= 0 && detach <= 1))
          throw ConfigError(
              fmt::format("global_momentum: detach must be in [0, 1], got {}", detach));
        return std::make_unique<GlobalMomentum>(beta, detach);
      },
      "error feedback with the momentum of what all ranks have sent together {beta=0.9, detach=0}");
}

}  // namespace thinwire
