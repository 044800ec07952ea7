// SPDX-License-Identifier: Apache-2.0
// Decoupled momentum: the momentum is also the error memory, and the step is a sign.
// Peng, Chen, Su, Quesnelle, Kingma, Liu, "DeMo: Decoupled Momentum Optimization", ICLR 2026, arXiv
// 2411.19870.
// Update rule: m = decay * m + x; send C(m); m -= C(m); value = sign(combined), sign(0) = 0
// (sign=no: combined).
// Bytes: nothing of its own; keeps one value an element. Passes over memory: one that reads m and x
// and writes m; the codec leaves in it what it has not sent; one for the sign.
// Departs from the paper: the learning rate is not inside the momentum, which a sign does not see
// as long as it stays the same.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/sign.h>
#include <fmt/format.h>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class DecoupledMomentum : public Memory {
 public:
  DecoupledMomentum(double decay, bool sign) : decay_(decay), sign_(sign) {}

  void before(Tensor& x, const Slot&) override {
    if (momentum_.defined())
      at::add_out(momentum_, x, momentum_, decay_);
    else
      momentum_ = x.clone();
    x = momentum_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot&) override {
    sent.residual(x, momentum_);
  }
  void received(Tensor& value, Rank, const Slot&) override {
    if (sign_) value.sign_();
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot&) override {
    momentum_.add_(own).sub_(x);
    decay_ == 0 ? momentum_.zero_() : momentum_.div_(decay_);
  }
  void visit_state(StateVisitor& visitor) override { visitor.elements("momentum", momentum_); }

 private:
  double decay_;
  bool sign_;
  Tensor momentum_;
};

}  // namespace

void register_demo(MemoryRegistry& registry) {
  registry.add(
      "demo",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double decay = reader.number("decay", 0.999);
        const bool sign = reader.flag("sign", true);
        reader.finish();
        if (!(decay >= 0 && decay <= 1))
          throw ConfigError(fmt::format("demo: decay must be in [0, 1], got {}", decay));
        return std::make_unique<DecoupledMomentum>(decay, sign);
      },
      "momentum that is the error memory, and a step by sign: demo|chunk_dct {decay=0.999}");
}

}  // namespace thinwire
