// SPDX-License-Identifier: Apache-2.0
// Momentum before sending: what travels is the momentum of this rank's gradients.
// Polyak (1964); Nesterov (1983); before compression: Lin, Han, Mao, Wang, Dally, "Deep Gradient
// Compression" (2018), section 3.2, whose control it is; Karimireddy et al., "Error Feedback Fixes
// SignSGD" (2019).
// Update rule: u = beta * u + x; send u (nesterov: x + beta * u).
// Bytes: nothing of its own; keeps one value an element. Passes over memory: one that reads u and x
// and writes u (nesterov: and one that writes what is sent).
// Departs from the papers: nothing. Use it with a plain optimizer: momentum has been applied then.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <fmt/format.h>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class Momentum : public Memory {
 public:
  Momentum(double beta, bool nesterov) : beta_(beta), nesterov_(nesterov) {}

  void before(Tensor& x, const Slot&) override {
    if (momentum_.defined())
      at::add_out(momentum_, x, momentum_, beta_);
    else
      momentum_ = x.clone();
    if (!nesterov_) {
      x = momentum_;
      return;
    }
    if (!ahead_.defined()) ahead_ = x.clone();
    at::add_out(ahead_, x, momentum_, beta_);
    x = ahead_;
  }
  void sent(const Tensor&, const Sent&, const Slot&) override {}
  void take_back(const Tensor& x, const Tensor&, const Slot&) override {
    momentum_.sub_(x);
    beta_ == 0 ? momentum_.zero_() : momentum_.div_(beta_);
  }
  bool keeps_rest() const override { return false; }
  void visit_state(StateVisitor& visitor) override { visitor.elements("momentum", momentum_); }

 private:
  double beta_;
  bool nesterov_;
  Tensor momentum_, ahead_;
};

}  // namespace

void register_momentum(MemoryRegistry& registry) {
  registry.add(
      "momentum",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double beta = reader.number("beta", 0.9);
        const bool nesterov = reader.flag("nesterov", false);
        reader.finish();
        if (!(beta >= 0 && beta < 1))
          throw ConfigError(fmt::format("momentum: beta must be in [0, 1), got {}", beta));
        return std::make_unique<Momentum>(beta, nesterov);
      },
      "sends the momentum of this rank's gradients {beta=0.9, nesterov=no}");
}

}  // namespace thinwire
