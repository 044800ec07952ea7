// SPDX-License-Identifier: Apache-2.0
// Gradients that are sent in some steps only, and tensors that are cut: what the grouping covap
// plans, with the memory ef. The checks of the paper's brief; the table of VGG-19 stands in
// tests/plan/grouping/covap_test.cpp.
#include <cmath>
#include <numeric>

#include "tests/exchange/one_exchange.h"
#include "thinwire/train/optimizer.h"

namespace thinwire::test {
namespace {

constexpr int kCount = 60;  ///< 40 + 10 + 10; covap cuts the 40 in as many parts as there are steps

std::string grouping(int interval, const std::string& more = "") {
  return "covap{interval=" + std::to_string(interval) + ",bytes=40,first=40" + more + "}";
}

/// Three vectors whose gradients the test says.
struct Three {
  std::vector<at::Tensor> w;
  GradientSync sync;
  Three(RankWorld& world, const std::string& grouping, const std::string& form,
        const std::string& plan = "")
      : w{parameter(at::zeros({4, 10})), parameter(at::zeros({10})), parameter(at::zeros({10}))},
        sync({{"a", w[0]}, {"b", w[1]}, {"c", w[2]}}, {}, world.comm,
             options(world, grouping, form, plan)) {}
  static SyncOptions options(RankWorld& world, const std::string& grouping, const std::string& form,
                             const std::string& plan) {
    SyncOptions out = world.options(grouping);
    out.form = form;
    out.plan = plan;
    return out;
  }
  void backward(const at::Tensor& g) {
    test::backward(sync, [&] {
      return (w[0].view({40}) * g.narrow(0, 0, 40)).sum() + (w[1] * g.narrow(0, 40, 10)).sum() +
             (w[2] * g.narrow(0, 50, 10)).sum();
    });
  }
  at::Tensor grad() {
    return at::cat({w[0].grad().reshape({40}), w[1].grad(), w[2].grad()}).clone();
  }
  at::Tensor values() {
    return at::cat({w[0].detach().reshape({40}), w[1].detach(), w[2].detach()});
  }
  void step(const at::Tensor& g, double rate = 0.5) {
    backward(g);
    sgd(w, rate);
  }
  /// Of all ranks together; on rank 0.
  at::Tensor residuals() {
    at::Tensor out = at::zeros({kCount});
    for (const auto& [name, tensor] : sync.form_state()) {
      const auto at = name.find("ef/residual/");
      if (at == std::string::npos) continue;
      const char tensor_name = name[at + 12];
      const auto begin = std::stoll(name.substr(name.find('[') + 1));
      const auto first = tensor_name == 'a' ? 0 : tensor_name == 'b' ? 40 : 50;
      out.narrow(0, first + begin, tensor.numel()) += tensor;
    }
    return out;
  }
};

at::Tensor drawn(Rank rank, int step) {
  return at::sin(at::arange(kCount, at::kFloat) * (0.7 + rank) + 3 * step);
}

void replicas_agree(RankWorld& world, Three& model) {
  const at::Tensor values = model.values().contiguous();
  std::string bits(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  std::string hex;
  for (const char c : bits) hex += std::to_string(static_cast<int>(c)) + ",";
  must_agree(*world.comm.membership(), "parameters", hex);
}

/// A plan in which 'a' of the model stands in one bucket that is sent in every third step.
std::string plan_by_hand(int ranks, const std::string& form) {
  Plan plan =
      data_parallel_plan({{"w", DType::f32, {1}}}, {{{{0, 0, 1}}}}, ranks, parse_chain(form));
  plan.exchanges[0].start.every = 3;
  return to_json(plan);
}

}  // namespace

TEST(OffSteps, IntervalOneIsDenseBitForBit) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    Three dense(world, "size_cap", "none"), cut(world, grouping(1), "ef|none"),
        bare(world, grouping(1), "none");
    for (int step = 0; step < 7; ++step) {
      for (Three* one : {&dense, &cut, &bare}) one->step(drawn(world.rank, step));
      EXPECT_TRUE(at::equal(dense.values(), cut.values()));
      EXPECT_TRUE(at::equal(dense.values(), bare.values()));
    }
  });
}

// A cut tensor that is sent whole in every step is what an uncut one is.
TEST(OffSteps, CutTensorsAreDenseBitForBit) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Three dense(world, "size_cap", "none");
    Plan plan = dense.sync.plan();
    Grouping cut{{{{2, 0, 10}, {1, 0, 3}}},
                 {{{1, 3, 10}, {0, 0, 1}}},
                 {{{0, 1, 17}, {0, 17, 21}}},
                 {{{0, 21, 40}}}};
    const std::string text = to_json(data_parallel_plan(plan.tensors, cut, 2, {}));
    Three parts(world, "", "none", text);
    for (int step = 0; step < 4; ++step) {
      dense.step(drawn(world.rank, step));
      parts.step(drawn(world.rank, step));
      EXPECT_TRUE(at::equal(dense.values(), parts.values()));
    }
    cut = {{{{2, 0, 10}, {0, 0, 20}}}, {{{1, 0, 10}, {0, 20, 40}}}};
    const std::string apart = to_json(data_parallel_plan(plan.tensors, cut, 2, {}));
    TW_EXPECT_THROW(Three(world, "", "none", apart), ConfigError, "must follow each other");
  });
}

TEST(OffSteps, ReplicasAgreeAfterEveryStep) {
  const Watchdog watchdog;
  for (const int interval : {2, 3, 4, 8})
    for (const std::string form : {"ef|none", "ef{schedule=ramp}|none", "none", "ef|sign"})
      sync_ranks(3, [&](RankWorld& world) {
        Three model(world, grouping(interval), form);
        for (int step = 0; step < 2 * interval + 1; ++step) {
          model.step(drawn(world.rank, step));
          replicas_agree(world, model);
        }
      });
}

TEST(OffSteps, NothingIsLost) {
  const Watchdog watchdog;
  for (const int interval : {1, 3, 4, 7})
    sync_ranks(2, [&](RankWorld& world) {
      Three model(world, grouping(interval), "ef|none");
      at::Tensor made = at::zeros({kCount});
      for (int step = 0; step < 11; ++step) {
        made += (drawn(0, step) + drawn(1, step)) / 2;
        model.step(drawn(world.rank, step));
        const at::Tensor left = model.residuals() / 2;
        if (world.rank == 0) {
          EXPECT_LT((model.values() + 0.5 * (made - left)).abs().max().item<float>(), 2e-5)
              << interval << " " << step;
        }
      }
    });
}

// Gradients 1 to 7, sent at the first step and every third after it, by a plan written by hand.
TEST(OffSteps, ScalarTrace) {
  const Watchdog watchdog;
  const std::vector<std::pair<std::string, std::vector<float>>> traces{
      {"ef|none", {1, 0, 0, 9, 0, 0, 18}},
      {"ef{schedule=ramp,start=0.5,rise=0}|none", {1, 0, 0, 8, 0, 0, 15.5}}};
  for (const auto& [form, expected] : traces)
    sync_ranks(2, [&](RankWorld& world) {
      auto w = parameter(at::zeros({1}));
      SyncOptions options = world.options();
      options.plan = plan_by_hand(2, form);
      GradientSync sync({{"w", w}}, {}, world.comm, options);
      for (int step = 0; step < 7; ++step) {
        backward(sync, [&] { return (w * (step + 1)).sum(); });
        EXPECT_EQ(w.grad().item<float>(), expected[static_cast<std::size_t>(step)]) << step;
        w.mutable_grad().reset();
      }
    });
}

TEST(OffSteps, EverySliceGoesOnceInAnyIntervalSteps) {
  const Watchdog watchdog;
  constexpr int kInterval = 4, kSteps = 3 * kInterval;
  sync_ranks(2, [](RankWorld& world) {
    Three model(world, grouping(kInterval), "ef|none");
    ASSERT_EQ(model.sync.plan().grouping.size(), 2u + kInterval);
    std::vector<at::Tensor> sent;
    for (int step = 0; step < kSteps; ++step) {
      model.backward(at::ones({kCount}));
      sent.push_back(model.grad().ne(0).to(at::kInt));
      sgd(model.w, 0);
    }
    for (int begin = 0; begin + kInterval <= kSteps; ++begin) {
      at::Tensor times = at::zeros({kCount}, at::kInt);
      for (int step = begin; step < begin + kInterval; ++step)
        times += sent[static_cast<std::size_t>(step)];
      EXPECT_TRUE(times.eq(1).all().item<bool>()) << begin;
    }
    for (const Event& event : model.sync.trace()) {
      if (event.kind != OpKind::exchange) continue;
      EXPECT_EQ((event.step + event.index + 1) % kInterval, 0) << "an event of a step without one";
    }
  });
}

TEST(OffSteps, WireBytesAreTheDenseOnesOverTheInterval) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    const auto bytes_of = [&](const std::string& how, const std::string& form, int steps) {
      std::vector<at::Tensor> w;
      std::vector<NamedTensor> list;
      for (const std::int64_t count : {300000, 40000, 200000, 100000, 64000}) {
        w.push_back(parameter(at::zeros({count})));
        list.push_back({"w" + std::to_string(w.size()), w.back()});
      }
      SyncOptions options = world.options(how);
      options.form = form;
      GradientSync sync(list, {}, world.comm, options);
      Bytes sum = 0;
      for (int step = 0; step < steps; ++step) {
        backward(sync, [&] {
          at::Tensor out = at::zeros({});
          for (const at::Tensor& one : w) out = out + one.sum();
          return out;
        });
        sgd(w, 0.1);
        sum += sync.last_step().wire_bytes;
      }
      return static_cast<double>(sum) / steps;
    };
    const double dense = bytes_of("size_cap", "none", 2);
    for (const int interval : {2, 8}) {
      const std::string how =
          "covap{interval=" + std::to_string(interval) + ",bytes=400KiB,first=100KiB}";
      EXPECT_NEAR(bytes_of(how, "ef|none", interval) / (dense / interval), 1, 0.02) << interval;
    }
  });
}

// Logistic regression, four ranks: with the memory as good as dense at equal steps, without worse.
TEST(OffSteps, LogisticRegressionConverges) {
  const Watchdog watchdog;
  sync_ranks(4, [](RankWorld& world) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    const at::Tensor x = at::randn({400, 20}, generator), truth = at::randn({20}, generator);
    const at::Tensor y =
        (at::mv(x, truth) + 0.5 * at::randn({400}, generator)).gt(0).to(at::kFloat);
    const auto loss_of = [&](const at::Tensor& w, std::int64_t begin, std::int64_t count) {
      return at::binary_cross_entropy_with_logits(at::mv(x.narrow(0, begin, count), w),
                                                  y.narrow(0, begin, count));
    };
    const auto trained = [&](const std::string& how, const std::string& form) {
      std::vector<at::Tensor> w;
      std::vector<NamedTensor> list;
      for (int i = 0; i < 20; ++i) {
        w.push_back(parameter(at::zeros({1})));
        list.push_back({"w" + std::to_string(i), w.back()});
      }
      SyncOptions options = world.options(how);
      options.form = form;
      GradientSync sync(list, {}, world.comm, options);
      for (int step = 0; step < 400; ++step) {
        backward(sync, [&] { return loss_of(at::cat(w), world.rank * 100, 100); });
        sgd(w, 0.1);
      }
      const at::NoGradGuard no_grad;
      return loss_of(at::cat(w), 0, 400).item<double>();
    };
    const double dense = trained("size_cap", "none");
    for (const int interval : {2, 4, 8}) {
      const std::string how = "covap{interval=" + std::to_string(interval) + ",bytes=4,first=4}";
      EXPECT_LT(trained(how, "ef|none") / dense, 1.02) << interval;
      if (interval >= 4) {
        EXPECT_GT(trained(how, "none") / dense, 1.05) << interval;
      }
    }
  });
}

// On a diagonal quadratic each slice does gradient descent with a step I times as long.
TEST(OffSteps, ClosedFormOnAQuadratic) {
  const Watchdog watchdog;
  constexpr int kInterval = 4;
  sync_ranks(2, [](RankWorld& world) {
    Three model(world, grouping(kInterval), "ef|none");
    const at::Tensor curvature = at::linspace(0.1, 1.9, kCount), aim = at::cos(at::arange(kCount));
    const double rate = 1.0 / kInterval;
    for (int step = 0; step < 6 * kInterval; ++step) {
      // Ranks pull to either side of the aim.
      const double side = world.rank == 0 ? 1 : -1;
      model.step(curvature * (model.values() - aim) + side * aim, rate);
    }
    // What is sent before interval steps are over is less than a whole round.
    const auto& groups = model.sync.plan().grouping;
    at::Tensor rounds = at::zeros({kCount}), first = at::zeros({kCount});
    for (std::size_t s = 0; s < groups.size(); ++s)
      for (const Slice& slice : groups[s].slices) {
        const std::int64_t at = slice.tensor == 0 ? 0 : slice.tensor == 1 ? 40 : 50;
        const auto steps = kInterval - static_cast<std::int64_t>(s) % kInterval;
        first.narrow(0, at + slice.begin, slice.end - slice.begin).fill_(steps);
        // Sent in steps `steps` - 1, and every kInterval from there.
        rounds.narrow(0, at + slice.begin, slice.end - slice.begin).fill_(5);
      }
    const at::Tensor error =
        -aim * (1 - rate * first * curvature) * at::pow(1 - rate * kInterval * curvature, rounds);
    EXPECT_LT((model.values() - aim - error).abs().max().item<float>(), 1e-4);
  });
}

// The memory is served where a parameter takes no part in a step.
TEST(OffSteps, UnusedParametersAreServed) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({1})), other = parameter(at::zeros({1}));
    SyncOptions options = world.options("covap{interval=2,bytes=4,first=4}");
    options.form = "ef|none";
    GradientSync sync({{"w", w}, {"other", other}}, {}, world.comm, options);
    // Bucket 0 is 'other', sent in odd steps; bucket 1 is 'w', sent in even ones.
    std::vector<float> sums;
    for (int step = 0; step < 4; ++step) {
      backward(sync, [&] {
        const at::Tensor out = (w * (step + 1)).sum();
        return step % 2 == 0 ? out + other.sum() : out;
      });
      sums.push_back(other.grad().defined() ? other.grad().item<float>() : -1);
      sgd({w, other}, 1);
    }
    EXPECT_EQ(sums, (std::vector<float>{0, 1, 0, 1}));
    EXPECT_EQ(other.item<float>(), -2);
    EXPECT_EQ(w.item<float>(), -(1 + 2 + 3));
  });
}

TEST(OffSteps, ANaNInAStepWithoutSendingIsTakenBack) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Three model(world, grouping(4), "ef|none");
    model.step(drawn(world.rank, 0));
    const at::Tensor w = model.values().clone(), before = model.residuals();
    at::Tensor bad = drawn(world.rank, 1);
    if (world.rank == 1) bad[0] = std::numeric_limits<float>::quiet_NaN();
    model.step(bad);
    EXPECT_TRUE(at::equal(model.values(), w));
    const at::Tensor after = model.residuals();
    if (world.rank == 0) {
      EXPECT_LT((after - before).abs().max().item<float>(), 1e-5);
    }
  });
}

// With a constant gradient Adam's steps shrink: m is g, v is about I g^2.
TEST(OffSteps, AdamsStepsShrinkUnlessItsStateIsFrozen) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    const auto moved = [&](const std::string& how) {
      Three model(world, how, "ef|none");
      NamedOptimizer optimizer(parse_spec("adam"),
                               {{"a", model.w[0]}, {"b", model.w[1]}, {"c", model.w[2]}});
      optimizer.set_learning_rate(1e-3);
      constexpr int kWarm = 400, kSteps = 80;
      at::Tensor before;
      for (int step = 0; step < kWarm + kSteps; ++step) {
        if (step == kWarm) before = model.w[1].detach().clone();
        model.backward(at::ones({kCount}));
        optimizer.step();
        optimizer.zero_grad();
      }
      return (before - model.w[1].detach()).mean().item<double>() / kSteps / 1e-3;
    };
    EXPECT_NEAR(moved("size_cap"), 1, 0.01);
    EXPECT_NEAR(moved(grouping(4)), 0.5, 0.02);
    // Then each step that is taken is a whole one: one in I.
    EXPECT_NEAR(moved(grouping(4, ",skipped=frozen")), 0.25, 0.01);
  });
}

TEST(OffSteps, SkippedGradientsAreZerosOrNone) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Three zero(world, grouping(4), "ef|none"),
        frozen(world, grouping(4, ",skipped=frozen"), "ef|none");
    for (int step = 0; step < 8; ++step) {
      for (Three* one : {&zero, &frozen}) one->backward(at::ones({kCount}));
      // Bucket 0 is 'c': sent in steps 3 and 7.
      EXPECT_TRUE(all_equal(zero.w[2].grad(), step % 4 == 3 ? 4 : 0)) << step;
      EXPECT_EQ(frozen.w[2].grad().defined(), step % 4 == 3) << step;
      EXPECT_TRUE(frozen.w[0].grad().defined()) << "some part is sent in every step";
      for (Three* one : {&zero, &frozen}) sgd(one->w, 1);
    }
    EXPECT_TRUE(at::equal(zero.values(), frozen.values()));
    TW_EXPECT_THROW(Three(world, grouping(4, world.rank == 0 ? ",skipped=frozen" : ""), "ef|none"),
                    ConfigError, "skipped gradients");
  });
}

}  // namespace thinwire::test
