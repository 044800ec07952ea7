// SPDX-License-Identifier: Apache-2.0
// Whose memory gradients travel in: a bucket's, or that of .grad itself, and what users see of it.
#include <torch/csrc/autograd/variable.h>

#include "tests/train/sync_ranks.h"

namespace thinwire::test {
namespace {

/// Runs `with` on the gradient right after autograd has put it into .grad, before the engine sees
/// it.
class SeeGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit SeeGradient(std::function<void(const at::Tensor&)> with) : with_(std::move(with)) {}
  void operator()(const torch::autograd::Variable& parameter) override { with_(parameter.grad()); }

 private:
  std::function<void(const at::Tensor&)> with_;
};

}  // namespace

TEST(GradientMemory, GradientsKeptBetweenStepsLiveInTheBucket) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({4})), b = parameter(at::ones({4}));
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options());
    const void* memory = nullptr;
    for (int step = 0; step < 4; ++step) {
      // b takes no part in step 2: its cleared gradient stays cleared.
      backward(sync, [&] {
        return step == 2 ? (a * (world.rank + 1)).sum() : ((a + b) * (world.rank + 1)).sum();
      });
      EXPECT_TRUE(all_equal(a.grad(), 1.5));
      EXPECT_TRUE(all_equal(b.grad(), step == 2 ? 0 : 1.5));
      if (step > 0) {
        EXPECT_EQ(a.grad().data_ptr(), memory);
      }
      memory = a.grad().data_ptr();
      sgd({a, b}, 0, false);
    }
  });
}

TEST(GradientMemory, AGradientThatIsAMessageOfItsOwnTravelsWhereItLies) {
  const Watchdog watchdog;
  for (const bool set_to_none : {true, false})
    sync_ranks(2, [&](RankWorld& world) {
      auto a = parameter(at::ones({300, 20})), b = parameter(at::ones({20, 10}).t());
      GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options("wfbp"));
      std::map<std::string, const void*> lay;
      for (auto& [name, p] : {std::pair{"a", a}, std::pair{"b", b}})
        torch::autograd::impl::set_post_acc_grad_hooks(
            p, std::make_unique<SeeGradient>(
                   [&, key = std::string(name)](const at::Tensor& g) { lay[key] = g.data_ptr(); }));
      for (int step = 0; step < 4; ++step) {
        sgd({a, b}, 0, set_to_none);
        const at::Tensor x = at::full({7, 300}, world.rank + 1.0);
        backward(sync, [&] { return at::mm(at::mm(x, a), b.t()).sum(); });
        EXPECT_TRUE(all_equal(a.grad(), 7 * 1.5 * 10)) << "step " << step;
        EXPECT_TRUE(all_equal(b.grad(), 7 * 1.5 * 300)) << "step " << step;
        EXPECT_EQ(a.grad().data_ptr(), lay["a"]) << "step " << step;
        EXPECT_EQ(b.grad().data_ptr(), lay["b"]) << "step " << step;
        EXPECT_EQ(a.grad().storage().use_count(), 1U) << "the engine keeps no part of it";
      }
    });
}

TEST(GradientMemory, GradientsThatShareMemoryDoNotTravelInIt) {
  const Watchdog watchdog;
  sync_ranks(2, [&](RankWorld& world) {
    auto a = parameter(at::ones({6})), b = parameter(at::ones({2, 3}));
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options("wfbp"));
    at::Tensor held;  // a user's own view of the gradient
    for (int step = 0; step < 4; ++step) {
      sgd({a, b}, 0);
      // The gradients of a and of b are the same memory: what (a + b) receives, seen as two shapes.
      backward(sync, [&] {
        const at::Tensor c = a + b.view({6});
        return (c * c).sum() * (world.rank + 1);
      });
      EXPECT_TRUE(all_equal(a.grad(), 6)) << "step " << step << ": " << a.grad();
      EXPECT_TRUE(all_equal(b.grad(), 6)) << "step " << step << ": " << b.grad();
      if (held.defined()) {
        EXPECT_TRUE(all_equal(held, 6)) << "step " << step;
      }
      held = a.grad().view({2, 3});
    }
  });
}

TEST(GradientMemory, AViewTakenBetweenBackwardsKeepsItsValues) {
  const Watchdog watchdog;
  sync_ranks(2, [&](RankWorld& world) {
    auto a = parameter(at::ones({6})), b = parameter(at::ones({6}));
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options("wfbp"));
    const double x = world.rank + 1;
    for (int step = 0; step < 3; ++step) {
      sgd({a, b}, 0);
      sync.set_sync(false);
      backward(sync, [&] { return (a * x).sum(); });
      sync.set_sync(true);
      const at::Tensor local = a.grad().view({2, 3});
      backward(sync, [&] { return (b * x).sum(); });  // a takes no part in this one
      EXPECT_TRUE(all_equal(local, x)) << "step " << step << ": " << local;
      EXPECT_TRUE(all_equal(a.grad(), 1.5)) << "step " << step;
      EXPECT_TRUE(all_equal(b.grad(), 1.5)) << "step " << step;
    }
  });
}

}  // namespace thinwire::test
