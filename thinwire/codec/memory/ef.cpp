// SPDX-License-Identifier: Apache-2.0
// Error feedback: what a codec has not sent is added to what is produced next.
// Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent" (2014); Stich, Cordonnier, Jaggi,
// "Sparsified SGD with Memory" (2018); Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes
// SignSGD" (2019), arXiv 1901.09847.
// Update rule: u = decay * r + x; send C(u); r = u - C(u).
// Passes over memory: one that reads r and x and writes r, which the codec joins with its own where
// it can; u is r itself, and the codec leaves in it what it has not sent. Departs from the paper:
// the learning rate is not inside the memory; the step is taken with what has been sent.
#include <ATen/ops/add.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class ErrorFeedback : public Memory {
 public:
  explicit ErrorFeedback(double decay) : decay_(decay) {}

  void before(Tensor& x, const Slot&) override {
    if (residual_.defined())
      at::add_out(residual_, x, residual_, decay_);
    else
      residual_ = x.clone();
    x = residual_;
  }
  Tensor* lend(const Tensor& x, const Slot&) override {
    if (decay_ != 1) return nullptr;
    if (!residual_.defined()) residual_ = at::zeros_like(x);
    return &residual_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot&) override {
    sent.residual(x, residual_);
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot&) override {
    residual_.add_(own).sub_(x);
    if (decay_ == 0)
      residual_.zero_();
    else if (decay_ != 1)
      residual_.div_(decay_);
  }
  void visit_state(StateVisitor& visitor) override { visitor.elements("residual", residual_); }

 private:
  double decay_;
  Tensor residual_;  ///< between before() and sent(): what is to be sent
};

}  // namespace

void register_ef(MemoryRegistry& registry) {
  registry.add(
      "ef",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double decay = reader.number("decay", 1);
        reader.finish();
        if (!(decay >= 0 && decay <= 1))
          throw ConfigError(fmt::format("ef: decay must be in [0, 1], got {}", decay));
        return std::make_unique<ErrorFeedback>(decay);
      },
      "error feedback: what was not sent is added to what comes next {decay=1}");
}

}  // namespace thinwire
