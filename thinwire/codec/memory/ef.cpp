// SPDX-License-Identifier: Apache-2.0
// Error feedback: what a codec has not sent is added to what is produced next.
// Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent" (2014); Stich, Cordonnier, Jaggi,
// "Sparsified SGD with Memory" (2018); Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes
// SignSGD" (2019), arXiv 1901.09847.
// Update rule: u = decay * r + x; send C(u); r = u - C(u).
// schedule=ramp (Meng, Sun, "Near-Linear Scaling Data Parallel Training with Overlapping-Aware
// Gradient Compression", 2023, arXiv 2311.04499): in step t, from 1 on, decay is
// min(1, start + rise * floor(t / every)), and 1 in steps that send, unless sends=decayed.
// Passes over memory: one that reads r and x and writes r, which the codec joins with its own where
// it can; u is r itself, and the codec leaves in it what it has not sent. Departs from the paper:
// the learning rate is not inside the memory; the step is taken with what has been sent.
#include <ATen/ops/add.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

struct EfDecay {
  double start = 1, rise = 0;
  std::int64_t every = 1;
  bool sends = true;  ///< steps that send decay as well
  double of(const Slot& slot) const {
    if (slot.fires && !sends) return 1;
    return std::min(1.0, start + rise * static_cast<double>((slot.step + 1) / every));
  }
};

class ErrorFeedback : public Memory {
 public:
  explicit ErrorFeedback(const EfDecay& decay) : decay_(decay) {}

  void before(Tensor& x, const Slot& slot) override {
    if (residual_.defined())
      at::add_out(residual_, x, residual_, decay_.of(slot));
    else
      residual_ = x.clone();
    x = residual_;
  }
  Tensor* lend(const Tensor& x, const Slot& slot) override {
    if (decay_.of(slot) != 1) return nullptr;
    if (!residual_.defined()) residual_ = at::zeros_like(x);
    return &residual_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot&) override {
    sent.residual(x, residual_);
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot& slot) override {
    residual_.add_(own).sub_(x);
    const double decay = decay_.of(slot);
    if (decay == 0)
      residual_.zero_();
    else if (decay != 1)
      residual_.div_(decay);
  }
  void visit_state(StateVisitor& visitor) override { visitor.elements("residual", residual_); }

 private:
  EfDecay decay_;
  Tensor residual_;  ///< between before() and sent(): what is to be sent
};

EfDecay read_ef_decay(SpecReader& reader) {
  const std::string schedule = reader.text("schedule", "constant");
  if (schedule == "constant") {
    const double decay = reader.number("decay", 1);
    if (!(decay >= 0 && decay <= 1))
      throw ConfigError(fmt::format("ef: decay must be in [0, 1], got {}", decay));
    return {.start = decay};
  }
  if (schedule != "ramp")
    throw ConfigError(fmt::format("ef: schedule must be constant or ramp, got '{}'", schedule));
  EfDecay out{.start = reader.number("start", 0.5),
              .rise = reader.number("rise", 0.1),
              .every = reader.integer("every", 50)};
  const std::string sends = reader.text("sends", "whole");
  out.sends = sends == "decayed";
  if (!(out.start > 0 && out.start <= 1))
    throw ConfigError(fmt::format("ef: start must be in (0, 1], got {}", out.start));
  if (!(out.rise >= 0 && out.rise <= 1))
    throw ConfigError(fmt::format("ef: rise must be in [0, 1], got {}", out.rise));
  if (out.every < 1)
    throw ConfigError(fmt::format("ef: every must be at least 1, got {}", out.every));
  if (!out.sends && sends != "whole")
    throw ConfigError(fmt::format("ef: sends must be whole or decayed, got '{}'", sends));
  return out;
}

}  // namespace

void register_ef(MemoryRegistry& registry) {
  registry.add(
      "ef",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const EfDecay decay = read_ef_decay(reader);
        reader.finish();
        return std::make_unique<ErrorFeedback>(decay);
      },
      "error feedback: what was not sent is added to what comes next {decay=1, or schedule=ramp}");
}

}  // namespace thinwire
