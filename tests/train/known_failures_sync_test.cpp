// SPDX-License-Identifier: Apache-2.0
// Known failures of data parallelism, group A: inputs and results as the list has them.
#include "tests/train/sync_ranks.h"

namespace thinwire::test {
namespace {

struct Linear {
  at::Tensor weight, bias;
  Linear(std::int64_t in, std::int64_t out)
      : weight(parameter(at::ones({out, in}))), bias(parameter(at::ones({out}))) {}
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(, KnownFailures, ::testing::Values(RanksAre::threads, RanksAre::processes),
                         [](const auto& info) {
                           return info.param == RanksAre::threads ? "threads" : "processes";
                         });

TEST_P(KnownFailures, KF01_UnusedOnAllRanks) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Linear a(4, 4), b(4, 4);
    GradientSync sync(
        {{"a.weight", a.weight}, {"a.bias", a.bias}, {"b.weight", b.weight}, {"b.bias", b.bias}},
        {}, world.comm, world.options());
    const auto x = at::ones({2, 4});
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] { return a(x).sum(); });
      EXPECT_TRUE(all_equal(a.weight.grad(), 2.0));
      EXPECT_FALSE(b.weight.grad().defined());
      EXPECT_FALSE(b.bias.grad().defined());
      ASSERT_EQ(world.notices.size(), 1u) << "one report, at the end of the first backward";
      sgd({a.weight, a.bias, b.weight, b.bias}, 0);
    }
    for (const char* words : {"'b.weight'", "'b.bias'", "step 0", "0, 1"})
      EXPECT_NE(world.notices[0].find(words), std::string::npos) << world.notices[0];
    EXPECT_TRUE(all_equal(b.weight, 1.0));
  });
}

TEST_P(KnownFailures, KF01_UnusedOnOneRank) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Linear a(4, 4), b(4, 4);
    GradientSync sync(
        {{"a.weight", a.weight}, {"a.bias", a.bias}, {"b.weight", b.weight}, {"b.bias", b.bias}},
        {}, world.comm, world.options());
    const auto x = at::ones({2, 4});
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] { return world.rank == 0 ? a(x).sum() : a(x).sum() + b(x).sum(); });
      EXPECT_TRUE(all_equal(a.weight.grad(), 2.0));
      EXPECT_TRUE(all_equal(b.weight.grad(), 1.0));
      EXPECT_TRUE(all_equal(b.bias.grad(), 1.0));
      ASSERT_EQ(world.notices.size(), 1u);
      sgd({a.weight, a.bias, b.weight, b.bias}, 0);
    }
    for (const char* words : {"'b.weight'", "'b.bias'", "step 0", "ranks 0"})
      EXPECT_NE(world.notices[0].find(words), std::string::npos) << world.notices[0];
    EXPECT_EQ(world.notices[0].find("0, 1"), std::string::npos) << world.notices[0];
  });
}

TEST_P(KnownFailures, KF02_AccumulationWithAChangingSet) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({})), b = parameter(at::ones({}));
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, world.options());
    const double x = world.rank == 0 ? 1 : 3;
    for (int step = 0; step < 3; ++step) {
      {
        const NoSync local(sync);
        backward(sync, [&] { return a * x; });
      }
      backward(sync, [&] { return b * x; });
      EXPECT_EQ(a.grad().item<double>(), 2.0);
      EXPECT_EQ(b.grad().item<double>(), 2.0);
      sgd({a, b}, 0);
    }
  });
}

TEST_P(KnownFailures, KF03_AccumulationAfterLearning) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({1, 2}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    const auto x = at::ones({1, 2}) * (world.rank + 1);
    for (int step = 0; step < 3; ++step) {
      {
        const NoSync local(sync);
        backward(sync, [&] { return (w * x).sum(); });
      }
      backward(sync, [&] { return (w * x).sum(); });
      EXPECT_TRUE(all_equal(w.grad(), 3.0));
      sgd({w}, 0.1);
      EXPECT_LT((w + 0.3 * (step + 1)).abs().max().item<double>(), 1e-6);
    }
    int exchanges = 0;
    for (const Event& event : sync.trace()) exchanges += event.kind == OpKind::exchange ? 1 : 0;
    EXPECT_EQ(exchanges, 3);
  });
}

TEST_P(KnownFailures, KF05_ABucketThatNeverFills) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({8})), b = parameter(at::ones({8})), c = parameter(at::ones({8}));
    GradientSync sync({{"c", c}, {"b", b}, {"a", a}}, {}, world.comm, world.options("single"));
    const auto x = at::ones({8}) * (world.rank + 1);
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] { return (a * x).sum() + (2 * b * x).sum(); });
      EXPECT_TRUE(all_equal(a.grad(), 1.5));
      EXPECT_TRUE(all_equal(b.grad(), 3.0));
      EXPECT_FALSE(c.grad().defined());
      sgd({a, b, c}, 0);
    }
  });
}

TEST_P(KnownFailures, KF06_DifferentNumbersOfParameters) {
  const Watchdog watchdog;
  const auto errors = sync_errors(3, [](RankWorld& world) {
    Linear first(10, 10), second(10, 10);
    std::vector<NamedTensor> list{{"weight", first.weight}, {"bias", first.bias}};
    if (world.rank == 1)
      list = {{"0.weight", first.weight},
              {"0.bias", first.bias},
              {"1.weight", second.weight},
              {"1.bias", second.bias}};
    GradientSync sync(list, {}, world.comm, world.options());
  });
  for (const auto& text : errors) {
    EXPECT_EQ(text, errors[0]);
    for (const char* words :
         {"ConfigError", "rank 1", "2", "4", "'weight'", "'0.weight'", "'1.weight'", "'1.bias'"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST_P(KnownFailures, KF07_AnotherOrder) {
  const Watchdog watchdog;
  const auto errors = sync_errors(2, [](RankWorld& world) {
    auto a = parameter(at::ones({3, 4})), b = parameter(at::zeros({3, 4}));
    std::vector<NamedTensor> list{{"a", a}, {"b", b}};
    if (world.rank == 1) std::swap(list[0], list[1]);
    try {
      GradientSync sync(list, {}, world.comm, world.options());
    } catch (const ConfigError&) {
      EXPECT_TRUE(all_equal(a, 1));
      EXPECT_TRUE(all_equal(b, 0));
      EXPECT_EQ(world.comm.counters().payload_bytes, 0) << "no data message";
      throw;
    }
  });
  for (const auto& text : errors) {
    EXPECT_EQ(text, errors[0]);
    for (const char* words : {"ConfigError", "rank 0", "rank 1", "position 0", "'a'", "'b'"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST_P(KnownFailures, KF07_AnyDifferenceAlone) {
  const Watchdog watchdog;
  const std::vector<std::pair<NamedTensor, std::string>> others{
      {{"b", parameter(at::ones({3, 4}))}, "'b'"},
      {{"a", parameter(at::ones({4, 3}))}, "[4,3]"},
      {{"a", parameter(at::ones({3, 4}, at::kDouble))}, "f64"},
      {{"a", at::ones({3, 4})}, "frozen"},
      {{"a", parameter(at::ones({4, 3}).t())}, "strides"}};
  for (const auto& [other, words] : others) {
    const auto errors = sync_errors(2, [&other = other](RankWorld& world) {
      const NamedTensor mine =
          world.rank == 1 ? other : NamedTensor{"a", parameter(at::ones({3, 4}))};
      GradientSync sync({mine}, {}, world.comm, world.options());
    });
    for (const auto& text : errors) {
      EXPECT_NE(text.find("ConfigError"), std::string::npos) << text;
      EXPECT_NE(text.find(words), std::string::npos) << text;
    }
  }
}

TEST_P(KnownFailures, KF08_DifferentExclusions) {
  const Watchdog watchdog;
  const auto run = [](RankWorld& world, bool both) {
    auto a = parameter(at::ones({4})), b = parameter(at::ones({6}));
    auto options = world.options();
    if (both || world.rank == 0) options.excluded = {"b"};
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, options);
    backward(sync, [&] { return (a.sum() + b.sum()) * (world.rank + 1); });
    EXPECT_TRUE(all_equal(a.grad(), 1.5));
    EXPECT_TRUE(all_equal(b.grad(), world.rank + 1));
  };
  const auto errors = sync_errors(2, [&](RankWorld& world) { run(world, false); });
  for (const auto& text : errors) {
    for (const char* words : {"ConfigError", "'b'", "left out on rank 0", "exchanged on rank 1"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  sync_ranks(2, [&](RankWorld& world) { run(world, true); });
}

TEST_P(KnownFailures, KF09_BucketListsOfRanksThatUseAnotherOrder) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    std::vector<at::Tensor> p;
    std::vector<NamedTensor> list;
    for (int i = 0; i < 4; ++i) {
      p.push_back(parameter(at::full({1000}, 0.1 * (i + 1))));
      list.push_back({"p" + std::to_string(i), p.back()});
    }
    GradientSync sync(list, {}, world.comm, world.options("size_cap{bytes=8000}"));
    const auto local = [&](Rank rank, const std::vector<at::Tensor>& q) {
      at::Tensor y = at::ones({1000}) * (rank + 1);
      for (int i = 0; i < 4; ++i)
        y = at::tanh(y * q[static_cast<std::size_t>(rank == 0 ? i : 3 - i)]);
      return y.sum();
    };
    for (int step = 0; step < 3; ++step) {
      std::vector<at::Tensor> sum(4);
      for (Rank rank = 0; rank < 2; ++rank) {
        std::vector<at::Tensor> q;
        for (const auto& one : p) q.push_back(parameter(one));
        local(rank, q).backward();
        for (std::size_t i = 0; i < 4; ++i)
          sum[i] = rank == 0 ? q[i].grad() : (sum[i] + q[i].grad()) / 2;
      }
      backward(sync, [&] { return local(world.rank, p); });
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_LT((p[i].grad() - sum[i]).abs().max().item<double>(), 1e-6);
      must_agree(*world.comm.membership(), "plan digest", std::to_string(sync.plan_digest()));
      sgd(p, 0.1);
    }
  });
}

TEST_P(KnownFailures, KF09_AnotherPlanFile) {
  const Watchdog watchdog;
  const auto errors = sync_errors(2, [](RankWorld& world) {
    std::vector<NamedTensor> list;
    for (int i = 0; i < 4; ++i)
      list.push_back({"p" + std::to_string(i), parameter(at::ones({1000}))});
    std::vector<TensorDesc> descs;
    for (const auto& one : list) descs.push_back({one.name, DType::f32, {1000}});
    Plan plan = data_parallel_plan(
        descs, {{{{3, 0, 1000}, {2, 0, 1000}}}, {{{1, 0, 1000}, {0, 0, 1000}}}}, 2, {});
    if (world.rank == 1) std::swap(plan.exchanges[0].bucket, plan.exchanges[1].bucket);
    auto options = world.options();
    options.plan = to_json(plan);
    try {
      GradientSync sync(list, {}, world.comm, options);
    } catch (const ConfigError&) {
      EXPECT_EQ(world.comm.counters().payload_bytes, 0);
      throw;
    }
  });
  for (const auto& text : errors) {
    for (const char* words : {"ConfigError", "rank 0 has digest", "rank 1 has", "exchange 0"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST_P(KnownFailures, KF10_EqualAfterTheFirstSynchronisation) {
  const Watchdog watchdog;
  const auto model = [](Rank rank) {
    std::vector<NamedTensor> list;
    for (int i = 0; i < 40; ++i)
      list.push_back(
          {"p" + std::to_string(i), parameter(at::full({1000 * (i + 1)}, 100.0 * rank + i))});
    return list;
  };
  sync_ranks(4, [&](RankWorld& world) {
    for (int repetition = 0; repetition < 50; ++repetition) {
      const auto list = model(world.rank);
      const GradientSync sync(list, {}, world.comm, world.options());
      for (int i = 0; i < 40; ++i)
        ASSERT_TRUE(all_equal(list[static_cast<std::size_t>(i)].tensor, i));
    }
  });
  const auto errors = sync_errors(4, [&](RankWorld& world) {
    const auto list = model(world.rank);
    auto options = world.options();
    if (world.rank == 2) options.after_first_sync = [&] { list[17].tensor.detach()[5] += 1; };
    const GradientSync sync(list, {}, world.comm, options);
  });
  for (const auto& text : errors) {
    EXPECT_EQ(text, errors[0]);
    for (const char* words :
         {"ConfigError", "rank 2", "'p17'", "first synchronisation of parameters"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST_P(KnownFailures, KF11_UnevenNumbersOfBatches) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    const int batches = world.rank == 0 ? 5 : 3;
    const auto x = at::full({4}, world.rank == 0 ? 1.0 : 3.0);
    std::vector<double> values;
    for (int step = 0;; ++step) {
      sync.set_samples(step < batches ? 4 : 0);
      if (sync.total_samples() == 0) break;
      if (step < batches)
        backward(sync, [&] { return (w * x).mean(); });
      else
        sync.join_without_batch();
      sgd({w}, 1);
      values.push_back(w.item<double>());
    }
    EXPECT_EQ(values, (std::vector<double>{-2, -4, -6, -7, -8}));
  });
}

TEST_P(KnownFailures, KF11_UnevenBatches) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    const auto x = world.rank == 0 ? at::tensor({4.0f, 6.0f}) : at::tensor({3.0f});
    sync.set_samples(x.numel());
    backward(sync, [&] { return (w * x).mean(); });
    EXPECT_NEAR(w.grad().item<double>(), 13.0 / 3, 1e-6);
  });
}

TEST_P(KnownFailures, KF11_ABareLoopThatStopsEarly) {
  const Watchdog watchdog;
  const auto errors = sync_errors(2, [](RankWorld& world) {
    auto w = parameter(at::zeros({}));
    GradientSync sync({{"w", w}}, {}, world.comm, world.options());
    const int steps = world.rank == 0 ? 5 : 3;
    for (int step = 0; step < steps; ++step) backward(sync, [&] { return w * 1; });
  });
  EXPECT_EQ(errors[1], "");
  for (const char* words : {"CommError", "rank 1", "bucket 0, first tensor 'w'"})
    EXPECT_NE(errors[0].find(words), std::string::npos) << errors[0];
}

TEST_P(KnownFailures, KF13_AParameterWithoutElements) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Linear first(10, 10), second(10, 0);
    GradientSync sync({{"0.weight", first.weight},
                       {"0.bias", first.bias},
                       {"1.weight", second.weight},
                       {"1.bias", second.bias}},
                      {}, world.comm, world.options("wfbp"));
    const auto x = at::ones({4, 10}) * (world.rank + 1);
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] {
        const auto h = first(x);
        return h.sum() + second(h).sum();
      });
      EXPECT_TRUE(all_equal(first.weight.grad(), 6.0));
      EXPECT_EQ(second.weight.grad().sizes().vec(), (std::vector<std::int64_t>{0, 10}));
      EXPECT_EQ(second.bias.grad().sizes().vec(), (std::vector<std::int64_t>{0}));
      sgd({first.weight, first.bias, second.weight, second.bias}, 0);
    }
    int exchanges = 0;
    for (const Event& event : sync.trace()) exchanges += event.kind == OpKind::exchange ? 1 : 0;
    EXPECT_EQ(exchanges, 4) << "two buckets with elements, two steps";
  });
  sync_ranks(2, [](RankWorld& world) {
    auto empty = parameter(at::zeros({0}));
    GradientSync sync({{"empty", empty}}, {}, world.comm, world.options());
    for (int step = 0; step < 2; ++step) {
      backward(sync, [&] { return empty.sum(); });
      EXPECT_EQ(empty.grad().numel(), 0);
    }
  });
}

TEST_P(KnownFailures, KF14_ComplexParameters) {
  const Watchdog watchdog;
  for (const bool conjugated : {false, true}) {
    sync_ranks(2, [&](RankWorld& world) {
      auto z = parameter(at::full({2}, c10::complex<float>(1, 1), at::kComplexFloat));
      GradientSync sync({{"z", z}}, {}, world.comm, world.options());
      // The gradient of a conjugate arrives marked as conjugated, not stored so.
      backward(sync, [&] {
        const auto y = conjugated ? z.conj() : z;
        return at::real(y * y.conj()).sum() * (world.rank + 1);
      });
      EXPECT_TRUE(at::equal(z.grad(), at::full({2}, c10::complex<float>(3, 3), at::kComplexFloat)))
          << z.grad();
      EXPECT_FALSE(z.grad().is_conj());
      EXPECT_EQ(sync.plan().exchanges.at(0).payload, 16);
    });
  }
}

}  // namespace thinwire::test
