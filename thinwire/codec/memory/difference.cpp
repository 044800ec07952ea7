// SPDX-License-Identifier: Apache-2.0
// Sends differences to an estimate that sender and receivers keep alike.
// Richtarik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically
// Faster Error Feedback", NeurIPS 2021, arXiv 2106.05203; Fatkhullin, Tyurin, Richtarik, "Momentum
// Provably Improves Error Feedback!" (2023), for eta below 1; between neighbours: Koloskova, Stich,
// Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
// Communication" (2019, CHOCO).
// Update rule, h this rank's estimate, m that of the combined value, both 0 at first:
//   v = (1 - eta) v + eta x            (eta = 1: v = x)
//   send c = C(v - h); h += c
//   combined: m += mean of c, and m is the value; of rank r: h(r) += c(r), and h(r) is the value
// Bytes: nothing of its own; keeps h, v - h and m (and v where eta < 1), three or four values an
// element. Passes over memory: v - h and h = v, then h -= what has not been sent, then m += c.
// Departs from the papers: the first estimate is C of the first value, not the exact one.
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class Difference : public Memory {
 public:
  explicit Difference(double eta) : eta_(eta) {}

  void before(Tensor& x, const Slot& slot) override {
    // Estimates of other ranks than these have been added up (FormState): their mean is another.
    if (ranks_ != 0 && ranks_ != slot.ranks && combined_.defined())
      combined_.mul_(static_cast<double>(ranks_) / slot.ranks);
    ranks_ = slot.ranks;
    if (!own_.defined()) own_ = at::zeros_like(x);
    if (!rest_.defined()) rest_ = at::empty_like(x);
    Tensor v = x;
    if (eta_ != 1) {
      if (!smooth_.defined()) smooth_ = at::zeros_like(x);
      smooth_.lerp_(x, eta_);
      v = smooth_;
    }
    at::sub_out(rest_, v, own_);
    own_.copy_(v);
    x = rest_;
  }
  void sent(const Tensor& x, const Sent& sent, const Slot& slot) override {
    if (slot.round > 0) own_.add_(rest_);
    sent.residual(x, rest_);
    own_.sub_(rest_);
  }
  void received(Tensor& value, Rank from, const Slot&) override {
    Tensor& estimate = from == kCombined ? combined_ : of_rank_[from];
    if (estimate.defined())
      estimate.add_(value);
    else
      estimate = value.to(own_.scalar_type(), false, true);
    if (value.scalar_type() == estimate.scalar_type())
      value.copy_(estimate);
    else
      value = estimate.clone();
  }
  void take_back(const Tensor& x, const Tensor& own, const Slot&) override {
    own_.sub_(own);
    if (eta_ != 1) smooth_.sub_(x, eta_).div_(1 - eta_);
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.elements("own", own_);
    if (eta_ != 1) visitor.elements("smooth", smooth_);
    visitor.shared_elements("combined", combined_);
    visitor.integer("ranks", ranks_);
    for (std::int64_t rank = 0; rank < std::min<std::int64_t>(ranks_, kMostRanks); ++rank) {
      const auto r = static_cast<Rank>(rank);
      Tensor estimate = of_rank_.contains(r) ? of_rank_[r] : Tensor();
      visitor.elements(fmt::format("rank{}", rank), estimate);
      if (estimate.defined()) of_rank_[r] = estimate;
    }
  }

 private:
  static constexpr std::int64_t kMostRanks = 1 << 16;  // a state may come from anywhere
  double eta_;
  std::int64_t ranks_ = 0;
  Tensor own_, rest_, smooth_, combined_;
  std::map<Rank, Tensor> of_rank_;  ///< of those in-neighbours that have sent
};

}  // namespace

void register_difference(MemoryRegistry& registry) {
  registry.add(
      "difference",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double eta = reader.number("eta", 1);
        reader.finish();
        if (!(eta > 0 && eta <= 1))
          throw ConfigError(fmt::format("difference: eta must be in (0, 1], got {}", eta));
        return std::make_unique<Difference>(eta);
      },
      "sends differences to an estimate that all keep alike: EF21, CHOCO {eta=1}");
}

}  // namespace thinwire
