// SPDX-License-Identifier: Apache-2.0
// DataParallel around torch::nn modules, against one process on the joined batch.
#include "thinwire/train/data_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "tests/train/sync_ranks.h"

namespace thinwire::test {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

Sequential small_net(std::uint64_t seed) {
  // The global generator is shared by rank threads, so weights come from one of their own.
  Sequential net(Linear(6, 8), ReLU(), Linear(8, 3));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.copy_(at::randn(p.sizes(), generator));
  return net;
}

at::Tensor batch(int rank) {
  return at::randn({4, 6},
                   at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(50 + rank)),
                   at::TensorOptions());
}

/// w * x whose backward runs a backward of its own, as recomputed segments do.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->saved_data["w"] = w;
    context->saved_data["x"] = x.detach();
    return w.detach() * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    at::Tensor x = context->saved_data["x"].toTensor().detach().requires_grad_();
    at::Tensor w = context->saved_data["w"].toTensor();
    {
      const at::AutoGradMode enabled(true);
      (w * x).backward(grads[0]);
    }
    return {x.grad(), at::Tensor()};
  }
};

struct Scaled : torch::nn::Module {
  explicit Scaled(bool recomputes)
      : recomputes(recomputes), w(register_parameter("w", at::full({}, 2.0))) {}
  at::Tensor forward(at::Tensor x) {
    if (!recomputes) return w * (w * x);
    return Recomputed::apply(Recomputed::apply(x.requires_grad_(), w), w);
  }
  bool recomputes;
  at::Tensor w;
};

struct Split : torch::nn::Module {
  Split() : a(register_module("a", Linear(2, 2))), b(register_module("b", Linear(2, 2))) {}
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, double scale) {
    return {a(x) * scale, {b(x), x}};
  }
  Linear a, b;
};

}  // namespace

TEST_P(KnownFailures, KF04_SeveralContributions) {
  const Watchdog watchdog;
  for (const bool recomputes : {false, true})
    sync_ranks(2, [&](RankWorld& world) {
      DataParallel model(std::make_shared<Scaled>(recomputes), world.comm, world.options());
      for (int step = 0; step < 3; ++step) {
        model.forward(at::full({}, world.rank == 0 ? 1.0 : 3.0)).backward();
        EXPECT_TRUE(all_equal(model->w.grad(), 8.0)) << model->w.grad();
        model->w.mutable_grad().reset();
      }
      int exchanges = 0;
      for (const Event& event : model.sync().trace())
        exchanges += event.kind == OpKind::exchange ? 1 : 0;
      EXPECT_EQ(exchanges, 3) << "one exchange a step, after the last contribution";
    });
}

TEST(DataParallel, TheTraceHasForwardBackwardAndUpdateInOrder) {
  const Watchdog watchdog;
  sync_ranks(2, [&](RankWorld& world) {
    DataParallel model(small_net(0), world.comm, world.options());
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      model(batch(world.rank)).pow(2).mean().backward();
      optimizer.step();
      model.sync().end_update();
    }
    for (int step = 0; step < 2; ++step) {
      Event forward, update;
      Seconds backward_begin_s = 1e9, backward_end_s = 0;
      for (const Event& event : model.sync().trace()) {
        if (event.step != step) continue;
        if (event.kind == OpKind::forward) forward = event;
        if (event.kind == OpKind::update) update = event;
        if (event.kind == OpKind::backward) {
          backward_begin_s = std::min(backward_begin_s, event.begin_s);
          backward_end_s = std::max(backward_end_s, event.end_s);
        }
      }
      EXPECT_EQ(forward.index, kWhole);
      EXPECT_LT(forward.begin_s, forward.end_s);
      EXPECT_EQ(forward.end_s, backward_begin_s);
      EXPECT_LE(backward_end_s, update.begin_s);
      EXPECT_LT(update.begin_s, update.end_s);
    }
  });
}

TEST(DataParallel, EqualsOneProcessOnTheJoinedBatch) {
  const Watchdog watchdog;
  for (const bool clip : {false, true})
    sync_ranks(2, [&](RankWorld& world) {
      DataParallel model(small_net(static_cast<std::uint64_t>(world.rank)), world.comm,
                         world.options());
      Sequential alone = small_net(0);
      torch::optim::SGD optimizer(model.parameters(), 0.1), control(alone->parameters(), 0.1);
      const auto joined = at::cat({batch(0), batch(1)});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad(step != 1);
        control.zero_grad();
        model(batch(world.rank)).pow(2).mean().backward();
        alone->forward(joined).pow(2).mean().backward();
        if (clip) {
          torch::nn::utils::clip_grad_norm_(model.parameters(), 0.5);
          torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.5);
        }
        optimizer.step();
        control.step();
        const auto mine = model.parameters(), theirs = alone->parameters();
        for (std::size_t i = 0; i < mine.size(); ++i)
          EXPECT_LT((mine[i] - theirs[i]).abs().max().item<double>(), 1e-6);
      }
    });
}

TEST(DataParallel, AnyArgumentsAndResults) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    DataParallel model(std::make_shared<Split>(), world.comm, world.options());
    auto [first, rest] = model.forward(at::ones({1, 2}), 2.0);
    (first.sum() + rest[0].sum() * (world.rank + 1)).backward();
    EXPECT_TRUE(all_equal(model->a->weight.grad(), 2.0));
    EXPECT_TRUE(all_equal(model->b->weight.grad(), 1.5));
  });
}

TEST(DataParallel, ToDoubleAfterwards) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    DataParallel model(Linear(2, 1), world.comm, world.options());
    const auto x = at::full({1, 2}, world.rank + 1.0);
    model(x).sum().backward();
    EXPECT_TRUE(all_equal(model->weight.grad(), 1.5));
    model->to(at::kDouble);
    for (int step = 0; step < 2; ++step) {
      model->zero_grad();
      model(x.to(at::kDouble)).sum().backward();
      EXPECT_EQ(model->weight.grad().scalar_type(), at::kDouble);
      EXPECT_TRUE(all_equal(model->weight.grad(), 1.5));
    }
  });
}

TEST(DataParallel, AUsersOwnHooksSurvive) {
  const Watchdog watchdog;
  struct Own : torch::autograd::PostAccumulateGradHook {
    explicit Own(std::vector<double>* seen) : seen(seen) {}
    void operator()(const torch::autograd::Variable& parameter) override {
      seen->push_back(parameter.grad().sum().item<double>());
      parameter.mutable_grad().mul_(2);  // what it does to the gradient counts
    }
    std::vector<double>* seen;
  };
  for (const bool before : {true, false})
    sync_ranks(2, [&](RankWorld& world) {
      Linear linear(2, 1);
      std::vector<double> seen, on_tensor;
      const auto add = [&] {
        torch::autograd::impl::set_post_acc_grad_hooks(linear->weight,
                                                       std::make_unique<Own>(&seen));
        linear->weight.register_hook(
            [&](const at::Tensor& grad) { on_tensor.push_back(grad.sum().item<double>()); });
      };
      if (before) add();
      DataParallel model(linear, world.comm, world.options());
      if (!before) add();
      const double own = 2.0 * (world.rank + 1);  // the local gradient is rank + 1, twice
      for (int step = 0; step < 3; ++step) {
        model(at::full({1, 2}, world.rank + 1.0)).sum().backward();
        EXPECT_TRUE(all_equal(linear->weight.grad(), 3.0)) << linear->weight.grad();
        EXPECT_TRUE(all_equal(linear->bias.grad(), 1.0));
        linear->zero_grad();
      }
      EXPECT_EQ(seen, std::vector<double>(3, own)) << "called once a step, before the exchange";
      EXPECT_EQ(on_tensor, std::vector<double>(3, own));
    });
}

TEST(DataParallel, AutocastToBFloat16) {
  const Watchdog watchdog;
  const auto autocast = [](auto&& forward) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::Tensor out = forward();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return out;
  };
  // Small whole numbers, which bf16 holds, so that the first step is equal bit for bit.
  const auto whole = [](at::Tensor x) { return x.mul(2).round().clamp(-2, 2); };
  sync_ranks(2, [&](RankWorld& world) {
    Sequential net = small_net(static_cast<std::uint64_t>(world.rank)), alone = small_net(0);
    for (auto* each : {&net, &alone})
      for (at::Tensor p : (*each)->parameters()) p.detach().copy_(whole(p.detach()));
    DataParallel model(net, world.comm, world.options());
    torch::optim::SGD optimizer(model.parameters(), 0.1), control(alone->parameters(), 0.1);
    const auto joined = whole(at::cat({batch(0), batch(1)}));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      control.zero_grad();
      const auto out = autocast([&] { return model(whole(batch(world.rank))); });
      EXPECT_EQ(out.scalar_type(), at::kBFloat16);
      out.to(at::kFloat).sum(1).mean().backward();
      autocast([&] { return alone->forward(joined); }).to(at::kFloat).sum(1).mean().backward();
      const auto mine = model.parameters(), theirs = alone->parameters();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i].grad().scalar_type(), at::kFloat);
        const auto difference = (mine[i].grad() - theirs[i].grad()).abs().max().item<double>();
        const auto scale = theirs[i].grad().abs().max().item<double>();
        EXPECT_LE(difference, step == 0 ? 0 : scale / 64) << "step " << step << ", " << i;
      }
      optimizer.step();
      control.step();
    }
  });
}

TEST(DataParallel, BatchNormFollowsRankZero) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    DataParallel model(Sequential(Linear(6, 4), BatchNorm1d(4)), world.comm, world.options());
    for (int step = 0; step < 2; ++step) model(batch(world.rank)).sum().backward();
    model->eval();
    model(batch(0));  // no exchange in evaluation
    model->train();
    model.sync().begin();
    for (const auto& buffer : model->buffers()) {
      const auto all = world.comm.membership()->all_gather(
          "buffer",
          std::string(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes()));
      EXPECT_EQ(all[0], all[1]);
    }
    EXPECT_EQ(model->buffers()[2].item<std::int64_t>(), 2);
  });
}

TEST(DataParallel, AutogradGradExchangesNothing) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    DataParallel model(Linear(2, 1), world.comm, world.options());
    const auto x = at::full({1, 2}, world.rank + 1.0).requires_grad_();
    const auto out = model(x);
    // A gradient penalty on rank 1 alone: takes part in no exchange of its own.
    if (world.rank == 1) torch::autograd::grad({out.sum()}, {x}, {}, true);
    EXPECT_EQ(model.sync().step(), 0);
    out.sum().backward();
    EXPECT_EQ(model.sync().step(), 1);
    EXPECT_TRUE(all_equal(model->weight.grad(), 1.5));
  });
}

TEST(DataParallel, OneRankIsPlainTorch) {
  const Watchdog watchdog;
  sync_ranks(1, [](RankWorld& world) {
    DataParallel model(Linear(2, 1), world.comm, world.options());
    model(at::ones({1, 2})).sum().backward();
    EXPECT_TRUE(all_equal(model->weight.grad(), 1.0));
    EXPECT_EQ(model.last_step().step, 0);
    EXPECT_EQ(model.last_step().wire_bytes, 0);
  });
}

TEST(DataParallel, AverageInPlace) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto x = at::full({1000000}, world.rank + 1.0);
    for (int call = 0; call < 10; ++call) {
      x.fill_(world.rank + 1.0);
      average(x, world.comm);
      EXPECT_TRUE(all_equal(x, 1.5));
    }
    auto columns = at::full({4, 6}, world.rank + 1.0).slice(1, 0, 3);
    average(columns, world.comm);
    EXPECT_TRUE(all_equal(columns, 1.5));
  });
}

}  // namespace thinwire::test
