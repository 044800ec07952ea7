// SPDX-License-Identifier: Apache-2.0
// The data-parallel engine beyond the known failures' own inputs: order of sums, changes of the
// model between steps, contributions that come late, forms, overlap.
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "tests/train/sync_ranks.h"
#include "thinwire/codec/codec.h"

namespace thinwire::test {
namespace {

/// The numbers a rank multiplies its parameters with: the local gradients.
at::Tensor numbers(std::uint64_t seed, std::vector<std::int64_t> shape,
                   at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kDouble))
      .to(dtype);
}

int exchanges_in(const Trace& trace) {
  return static_cast<int>(std::count_if(trace.begin(), trace.end(),
                                        [](const Event& e) { return e.kind == OpKind::exchange; }));
}

/// A codec whose decode hands back memory of its own each time.
class Fresh : public Codec {
 public:
  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return 0; }
  Payload encode(const Tensor& x, const Slot&) override { return {.parts = {x.clone()}}; }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    out = mode == Write::set ? payload.parts[0].clone() : out + payload.parts[0];
  }
};

void add_fresh() {
  static const bool once = [] {
    add_codec(
        "fresh", [](const Spec&, std::span<const TensorDesc>) { return std::make_unique<Fresh>(); },
        "test");
    return true;
  }();
  ASSERT_TRUE(once);
}

}  // namespace

TEST(Engine, SumsInRankOrderAndDividesOnce) {
  const Watchdog watchdog;
  const std::vector<std::vector<std::int64_t>> shapes{{33, 7}, {5}, {}, {2, 3, 4, 5}, {301}};
  for (int n = 1; n <= 4; ++n)
    for (const std::string grouping : {"wfbp", "single", "size_cap{bytes=400}"})
      sync_ranks(n, [&](RankWorld& world) {
        std::vector<at::Tensor> p;
        std::vector<NamedTensor> list;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          p.push_back(parameter(at::ones(shapes[i], i == 3 ? at::kDouble : at::kFloat)));
          list.push_back({"p" + std::to_string(i), p.back()});
        }
        GradientSync sync(list, {}, world.comm, world.options(grouping));
        const auto local = [&](int step, Rank rank, std::size_t i) {
          return numbers(static_cast<std::uint64_t>(100 * step + 10 * rank) + i, shapes[i],
                         p[i].scalar_type());
        };
        for (int step = 0; step < 3; ++step) {
          backward(sync, [&] {
            at::Tensor loss = at::zeros({}, at::kDouble);
            for (std::size_t i = 0; i < p.size(); ++i)
              loss = loss + (p[i] * local(step, world.rank, i)).sum();
            return loss;
          });
          for (std::size_t i = 0; i < p.size(); ++i) {
            at::Tensor sum = local(step, 0, i);
            for (Rank rank = 1; rank < n; ++rank) sum = sum + local(step, rank, i);
            EXPECT_TRUE(at::equal(p[i].grad(), n == 1 ? sum : sum / n))
                << n << " ranks, " << grouping << ", p" << i;
          }
          sgd(p, 0, step == 1);
        }
      });
}

TEST(Engine, ALateContributionIsAddedOnAllRanks) {
  const Watchdog watchdog;
  for (const bool on_both : {true, false})
    sync_ranks(2, [&](RankWorld& world) {
      auto a = parameter(at::ones({4})), b = parameter(at::ones({4}));
      GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options("wfbp"));
      const double x = world.rank + 1;
      // Step 0 teaches that b takes no part, so from then on its bucket starts when a's gradient
      // arrives; b's own comes after that.
      backward(sync, [&] { return (a * x).sum(); });
      for (int step = 1; step < 4; ++step) {
        sgd({a, b}, 0);
        const bool uses = on_both || world.rank == 1;
        backward(sync, [&] { return uses ? (b * x * a).sum() : (a * x).sum(); });
        EXPECT_TRUE(all_equal(a.grad(), 1.5));
        EXPECT_TRUE(all_equal(b.grad(), on_both ? 1.5 : 1.0)) << b.grad();
      }
      sgd({a, b}, 0);
      backward(sync, [&] { return (a * x).sum(); });
      EXPECT_FALSE(b.grad().defined());
    });
}

TEST(Engine, BackwardTwiceWithoutFlagsAddsUp) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::ones({3}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    sync.begin();
    at::Tensor loss = (w * (world.rank + 1)).sum();
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(all_equal(w.grad(), 1.5));
    loss.backward();
    EXPECT_TRUE(all_equal(w.grad(), 3.0));
  });
}

TEST(Engine, SharedAndMixedParameters) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::ones({2})), h = parameter(at::ones({2}, at::kBFloat16)),
         d = parameter(at::ones({2}, at::kDouble));
    auto image = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    GradientSync sync({{"w", w}, {"again", w}, {"h", h}, {"d", d}, {"image", image}}, {},
                      world.comm, world.options());
    EXPECT_EQ(sync.plan().tensors.size(), 4u);
    const auto x = numbers(static_cast<std::uint64_t>(world.rank), {2, 3, 4, 5});
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] {
        return (w * w * (world.rank + 1)).sum() + (h * (world.rank + 1)).sum().to(at::kFloat) +
               (d * (world.rank + 1)).sum() + (image * x).sum();
      });
      EXPECT_TRUE(all_equal(w.grad(), 3.0));
      EXPECT_TRUE(all_equal(h.grad(), 1.5));
      EXPECT_EQ(h.grad().scalar_type(), at::kBFloat16);
      EXPECT_TRUE(all_equal(d.grad(), 1.5));
      EXPECT_TRUE(
          at::equal(image.grad(), (numbers(0, {2, 3, 4, 5}) + numbers(1, {2, 3, 4, 5})) / 2));
      EXPECT_EQ(image.grad().strides(), image.strides());
      sgd({w, h, d, image}, 0);
    }
  });
}

TEST(Engine, FrozenAndUnfrozenParameters) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({2})), b = parameter(at::ones({2}));
    b.requires_grad_(false);
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options());
    const auto first = sync.plan_digest();
    const auto loss = [&] { return ((a + b) * (world.rank + 1)).sum(); };
    backward(sync, loss);
    EXPECT_TRUE(all_equal(a.grad(), 1.5));
    EXPECT_FALSE(b.grad().defined());
    b.requires_grad_(true);
    sgd({a}, 0);
    backward(sync, loss);
    EXPECT_TRUE(all_equal(a.grad(), 1.5));
    EXPECT_TRUE(all_equal(b.grad(), 1.5));
    EXPECT_NE(sync.plan_digest(), first);
    b.requires_grad_(false);
    sgd({a, b}, 0);
    backward(sync, loss);
    EXPECT_EQ(sync.plan_digest(), first);
    EXPECT_GE(sync.last_step().wire_bytes, 0);
  });
  // One rank thaws a parameter and the other does not: an error on both, in time, never a mixture.
  const auto errors = sync_errors(2, [](RankWorld& world) {
    auto a = parameter(at::ones({2})), b = parameter(at::ones({2}));
    b.requires_grad_(false);
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options());
    if (world.rank == 1) b.requires_grad_(true);
    for (int step = 0; step < 2; ++step) backward(sync, [&] { return (a + b).sum(); });
  });
  for (const auto& error : errors)
    for (const char* words : {"CommError", "agreement on changed parameters", "rank 1", "step 0"})
      EXPECT_NE(error.find(words), std::string::npos) << error;
  EXPECT_NE(errors[1].find("'b' was frozen and is trained on rank 1"), std::string::npos)
      << errors[1];
}

TEST(Engine, ReportsGradientsThatAreNotFinite) {
  const Watchdog watchdog;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool set_to_none : {true, false})
    for (const auto check : {FiniteCheck::copied, FiniteCheck::all, FiniteCheck::none})
      sync_ranks(3, [&](RankWorld& world) {
        auto small = parameter(at::ones({4})), large = parameter(at::ones({5000}));
        auto options = world.options();
        options.finite = check;
        GradientSync sync({{"small", small}, {"large", large}}, {}, world.comm, options);
        for (int step = 0; step < 6; ++step) {
          auto x = at::ones({4}), y = at::ones({5000});
          if (world.rank == 1 && (step == 1 || step == 2 || step == 4)) {
            x[0] = nan;
            y.slice(0, 7, 10).fill_(nan);
          }
          if (world.rank == 2 && step == 4) y[0] = nan;
          backward(sync, [&] { return (small * x).sum() + (large * y).sum(); });
          EXPECT_EQ(at::isnan(large.grad()).sum().item<std::int64_t>(),
                    step == 4 ? 4 : (step == 1 || step == 2 ? 3 : 0));
          sgd({small, large}, 0, set_to_none);
        }
        if (check == FiniteCheck::none) {
          EXPECT_TRUE(world.notices.empty());
          return;
        }
        // Step 2 is as step 1, so it is not told again.
        const bool sees_large = set_to_none || check == FiniteCheck::all;
        ASSERT_EQ(world.notices.size(), 2u);
        EXPECT_EQ(
            world.notices[0],
            std::string("step 1: gradients are not finite: on rank 1 'small' (1 of 4 values)") +
                (sees_large ? ", 'large' (3 of 5000 values)" : ""));
        EXPECT_EQ(world.notices[1].find("step 4:"), 0u) << world.notices[1];
        EXPECT_EQ(world.notices[1].find("rank 2 'large' (1 of 5000 values)") != std::string::npos,
                  sees_large)
            << world.notices[1];
      });
}

TEST(Engine, RefusesInWords) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::ones({3})), table = parameter(at::ones({5, 2}));
    GradientSync sync({{"w", w}, {"table", table}}, {}, world.comm, world.options());
    sync.begin();
    TW_EXPECT_THROW((w * w).sum().backward({}, std::nullopt, /*create_graph=*/true),
                    UnsupportedError, "'w'");
    w.mutable_grad().reset();
    sync.begin();
    const auto rows =
        at::embedding(table, at::tensor({0, 1}, at::kLong), -1, false, /*sparse=*/true);
    TW_EXPECT_THROW(rows.sum().backward(), UnsupportedError, "'table' is sparse");
    table.mutable_grad().reset();
    backward(sync, [&] { return (w * (world.rank + 1)).sum(); });
    EXPECT_TRUE(all_equal(w.grad(), 1.5)) << "nothing had been sent, so the engine goes on";
    TW_EXPECT_THROW(GradientSync({{"w", w}}, {}, world.comm, {.excluded = {"v"}}), ConfigError,
                    "'v'");
  });
}

TEST(Engine, ALossThatReachesNoParameterTakesPart) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::ones({3}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] { return world.rank == 0 ? at::ones({}) : w.sum(); });
      EXPECT_TRUE(all_equal(w.grad(), 0.5));
      w.mutable_grad().reset();
    }
    // The same without a marked output, by hand.
    sync.begin();
    if (world.rank == 1) w.sum().backward();
    sync.finish();
    EXPECT_TRUE(all_equal(w.grad(), 0.5));
    EXPECT_EQ(sync.step(), 3);
  });
}

TEST(Engine, BuffersFollowRankZero) {
  const Watchdog watchdog;
  for (const bool on : {true, false})
    sync_ranks(2, [&](RankWorld& world) {
      auto w = parameter(at::ones({3}));
      auto mean = at::zeros({4}), count = at::zeros({}, at::kLong);
      auto options = world.options();
      options.broadcast_buffers = on;
      GradientSync sync({{"w", w}}, {{"mean", mean}, {"count", count}}, world.comm, options);
      mean.fill_(world.rank + 5);
      count.fill_(world.rank + 7);
      backward(sync, [&] { return w.sum(); });
      EXPECT_TRUE(all_equal(mean, on ? 5 : world.rank + 5));
      EXPECT_TRUE(all_equal(count, on ? 7 : world.rank + 7));
    });
}

TEST(Engine, TwoModelsInOneProcess) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({3})), b = parameter(at::ones({5}));
    GradientSync first({{"w", a}}, {}, world.comm, world.options());
    {
      GradientSync second({{"w", b}}, {}, world.comm, world.options());
      for (int step = 0; step < 3; ++step) {
        backward(first, [&] { return (a * (world.rank + 1)).sum(); });
        backward(second, [&] { return (b * (world.rank + 2)).sum(); });
        EXPECT_TRUE(all_equal(a.grad(), 1.5));
        EXPECT_TRUE(all_equal(b.grad(), 2.5));
        sgd({a, b}, 0);
      }
      // Both in one backward.
      first.begin();
      second.begin();
      ((a * (world.rank + 1)).sum() + (b * (world.rank + 2)).sum()).backward();
      EXPECT_TRUE(all_equal(a.grad(), 1.5));
      EXPECT_TRUE(all_equal(b.grad(), 2.5));
      sgd({a, b}, 0);
    }
    backward(first, [&] { return (a * (world.rank + 1)).sum(); });
    EXPECT_TRUE(all_equal(a.grad(), 1.5)) << "destroying one leaves the other usable";
  });
}

TEST(Engine, EqualCountsAreThePlainMean) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    auto w = parameter(at::ones({50}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    at::Tensor sum = numbers(0, {50}) + numbers(1, {50}) + numbers(2, {50});
    sync.set_samples(7);
    EXPECT_EQ(sync.total_samples(), 21);
    backward(sync,
             [&] { return (w * numbers(static_cast<std::uint64_t>(world.rank), {50})).sum(); });
    EXPECT_TRUE(at::equal(w.grad(), sum / 3));
    EXPECT_EQ(sync.total_samples(), -1) << "counts hold for one exchange";
  });
}

TEST_P(KnownFailures, KF12_DecodedMemoryTakesNobodysPlace) {
  const Watchdog watchdog;
  add_fresh();
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({1, 3}));
    auto options = world.options();
    options.form = "fresh";
    GradientSync sync({{"w", w}}, {}, world.comm, options);
    const auto x = at::ones({1, 3}) * (world.rank + 1);
    for (int step = 0; step < 4; ++step) {
      {
        const NoSync local(sync);
        backward(sync, [&] { return (w * x).sum(); });
      }
      const void* slot = w.grad().data_ptr();
      backward(sync, [&] { return (w * x).sum(); });
      EXPECT_TRUE(all_equal(w.grad(), 3.0));
      EXPECT_EQ(w.grad().data_ptr(), slot);
      sgd({w}, 0.1);
      EXPECT_LT((w + 0.3 * (step + 1)).abs().max().item<double>(), 1e-6);
    }
    EXPECT_EQ(exchanges_in(sync.trace()), 4);
  });
}

TEST(Engine, KF40_SurvivorsBuildANewGroup) {
  const Watchdog watchdog;
  auto comms = make_local(3, 60);
  auto survivors = make_local(2, 2);
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    at::set_num_threads(1);
    auto w = parameter(at::ones({1000}));
    auto mine = std::move(comms[static_cast<std::size_t>(rank)]);
    try {
      GradientSync sync({{"w", w}}, {}, *mine, {});
      for (int step = 0;; ++step) {
        if (rank == 2 && step == 2) break;
        backward(sync, [&] { return w.sum(); });
      }
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("'w'"), std::string::npos) << error.what();
    }
    mine.reset();
    if (rank == 2) return;
    w.mutable_grad().reset();
    GradientSync again({{"w", w}}, {}, *survivors[static_cast<std::size_t>(rank)], {});
    for (int step = 0; step < 3; ++step) {
      backward(again, [&] { return (w * (rank + 1)).sum(); });
      EXPECT_TRUE(all_equal(w.grad(), 1.5));
      sgd({w}, 0.1);
    }
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
}

TEST_P(KnownFailures, KF45_ExchangesOverlapTheBackward) {
  const Watchdog watchdog;
  // 4 buckets of 40,000 bytes; an all-reduce moves 40,000 bytes each way of a link of 1 MB/s: 40
  // ms.
  sync_ranks(
      2,
      [](RankWorld& world) {
        std::vector<at::Tensor> p;
        std::vector<NamedTensor> list;
        for (int i = 0; i < 4; ++i) {
          p.push_back(parameter(at::ones({10000})));
          list.push_back({"p" + std::to_string(i), p.back()});
        }
        GradientSync sync(list, {}, world.comm, world.options("wfbp"));
        const auto forward = [&] {
          at::Tensor y = at::ones({10000});
          for (auto& one : p) {
            y = y * one;
            // The device's work: 50 ms before the gradients of this layer are there.
            y.register_hook([](const at::Tensor&) {
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
            });
          }
          return y.sum();
        };
        StepStats best{.exposed_s = 1};
        for (int step = 0; step < 6; ++step) {
          world.comm.barrier("step");
          backward(sync, forward);
          if (step > 0 && sync.last_step().exposed_s < best.exposed_s) best = sync.last_step();
          sgd(p, 0);
        }
        EXPECT_LE(best.exposed_s, 0.080);
        EXPECT_LE(best.compute_s + best.exposed_s, 0.280);
        std::vector<Event> sent, computed;
        for (const Event& event : sync.trace())
          if (event.step == best.step && event.kind == OpKind::exchange)
            sent.push_back(event);
          else if (event.step == best.step && event.kind == OpKind::backward)
            computed.push_back(event);
        ASSERT_EQ(sent.size(), 4u);
        ASSERT_EQ(computed.size(), 4u);
        for (std::size_t k = 0; k < 3; ++k) {
          EXPECT_LT(sent[k].begin_s, computed[k + 1].end_s);
          EXPECT_GT(sent[k].end_s, computed[k + 1].begin_s);
        }
      },
      10, "throttle{rate=8mbit}|");
}

}  // namespace thinwire::test
