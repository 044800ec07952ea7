// SPDX-License-Identifier: Apache-2.0
// order = agreed: models whose branches change from step to step and from rank to rank give the
// gradients of the plan's order, bit for bit, and a bucket that comes late holds up no other.
#include <algorithm>
#include <barrier>

#include "tests/train/sync_ranks.h"
#include "thinwire/core/rng.h"

namespace thinwire::test {
namespace {

constexpr int kSteps = 8, kBranches = 7;

/// Branch i of the model: a parameter and what a rank multiplies it with, if it takes it.
std::vector<std::int64_t> shape_of(int branch) {
  return branch == 3 ? std::vector<std::int64_t>{40, 50} : std::vector<std::int64_t>{3 + branch, 7};
}

at::Tensor factor(int step, Rank rank, int branch) {
  const std::vector<std::int64_t> shape = shape_of(branch);
  Rng rng({.seed = 11, .exchange = branch, .step = step, .rank = rank});
  at::Tensor out = at::empty(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = static_cast<float>(rng.normal());
  return out;
}

/// Which branches a rank takes in a step, in the order in which it takes them: seldom all, and each
/// rank others. With an even seed all in the first step, so that none is a surprise later.
std::vector<int> taken(std::uint64_t seed, int step, Rank rank) {
  Rng rng({.seed = seed, .step = step, .rank = rank});
  std::vector<int> out;
  for (int branch = 0; branch < kBranches; ++branch)
    if (rng.below(3) > 0 || (step == 0 && seed % 2 == 0)) out.push_back(branch);
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  return out;
}

struct Case {
  std::string order, grouping, form = "none";
  std::uint64_t seed = 0;
  int ranks = 2;
  std::string decorators;
};

using Gradients = std::vector<std::vector<at::Tensor>>;  ///< by step and branch

Gradients train(const Case& c, RankWorld& world) {
  Gradients out;
  std::vector<at::Tensor> p;
  std::vector<NamedTensor> list;
  for (int i = 0; i < kBranches; ++i) {
    p.push_back(parameter(at::ones(shape_of(i))));
    list.push_back({"p" + std::to_string(i), p.back()});
  }
  SyncOptions options = world.options(c.grouping);
  options.form = c.form;
  options.order = c.order;
  GradientSync sync(list, {}, world.comm, options);
  for (int step = 0; step < kSteps; ++step) {
    backward(sync, [&] {
      at::Tensor loss = at::zeros({});
      for (const int i : taken(c.seed, step, world.rank))
        loss = loss + (p[static_cast<std::size_t>(i)] * factor(step, world.rank, i)).sum();
      return loss;
    });
    auto& mine = out.emplace_back();
    for (const at::Tensor& each : p)
      mine.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
    sgd(p, 0);
  }
  return out;
}

void expect_same(const Gradients& a, const Gradients& b, const std::string& where) {
  for (std::size_t step = 0; step < kSteps; ++step)
    for (std::size_t i = 0; i < kBranches; ++i)
      EXPECT_TRUE(a[step][i].defined() == b[step][i].defined() &&
                  (!a[step][i].defined() || at::equal(a[step][i], b[step][i])))
          << where << ", step " << step << ", p" << i;
}

/// As rank 0 has them; all ranks have the same.
Gradients gradients(const Case& c) {
  std::vector<Gradients> all(static_cast<std::size_t>(c.ranks));
  sync_ranks(
      c.ranks,
      [&](RankWorld& world) { all[static_cast<std::size_t>(world.rank)] = train(c, world); }, 20,
      c.decorators);
  for (const Gradients& other : all) expect_same(all[0], other, "ranks differ");
  return all[0];
}

/// What one process has with the batches of all ranks; a branch that nobody takes has none.
Gradients of_the_joined_batch(const Case& c) {
  Gradients out(kSteps, std::vector<at::Tensor>(kBranches));
  for (int step = 0; step < kSteps; ++step)
    for (Rank rank = 0; rank < c.ranks; ++rank)
      for (const int branch : taken(c.seed, step, rank)) {
        at::Tensor& sum = out[static_cast<std::size_t>(step)][static_cast<std::size_t>(branch)];
        const at::Tensor more = factor(step, rank, branch);
        sum = sum.defined() ? sum + more : more;
      }
  for (auto& step : out)
    for (at::Tensor& sum : step)
      if (sum.defined() && c.ranks > 1) sum = sum / c.ranks;
  return out;
}

}  // namespace

TEST(AgreedOrder, BranchesGiveTheGradientOfTheJoinedBatch) {
  const Watchdog watchdog("agreed order", 120);
  for (const int ranks : {1, 2, 3})
    for (const std::uint64_t seed : {1, 2, 3, 5}) {
      const Case one{.order = "agreed", .grouping = "wfbp", .seed = seed, .ranks = ranks};
      expect_same(gradients(one), of_the_joined_batch(one),
                  std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
    }
}

TEST(AgreedOrder, BranchesDoSoBetweenProcesses) {
  const Watchdog watchdog("agreed order of processes", 120);
  ranks_are = RanksAre::processes;
  const Case one{.order = "agreed", .grouping = "size_cap{bytes=300}", .seed = 7, .ranks = 3};
  sync_ranks(
      one.ranks,
      [&](RankWorld& world) {
        expect_same(train(one, world), of_the_joined_batch(one),
                    "rank " + std::to_string(world.rank));
      },
      20);
  ranks_are = RanksAre::threads;
}

TEST(AgreedOrder, GivesTheBitsOfThePlansOrder) {
  const Watchdog watchdog("agreed order", 240);
  for (const char* grouping :
       {"wfbp", "single", "size_cap{bytes=300}", "covap{interval=3,first=100,bytes=300}"})
    for (const char* form : {"none", "ef|topk{ratio=0.3}", "powersgd{rank=1}"})
      for (const std::uint64_t seed : {4, 6}) {
        Case one{.order = "plan", .grouping = grouping, .form = form, .seed = seed, .ranks = 3};
        const auto plan = gradients(one);
        one.order = "agreed";
        expect_same(plan, gradients(one),
                    std::string(grouping) + ", " + form + ", seed " + std::to_string(seed));
      }
}

TEST(AgreedOrder, OverATransportThatLetsRanksRunAhead) {
  const Watchdog watchdog("agreed order", 240);
  for (const std::uint64_t seed : {6, 8, 10}) {
    Case one{.order = "plan",
             .grouping = "wfbp",
             .seed = seed,
             .ranks = 3,
             .decorators = "throttle{rate=100mbit,latency_ms=0.3}|"};
    const auto plan = gradients(one);
    one.order = "agreed";
    expect_same(plan, gradients(one), "seed " + std::to_string(seed));
  }
}

TEST(AgreedOrder, ALateBucketHoldsUpNoOther) {
  const Watchdog watchdog;
  for (const std::string order : {"plan", "agreed"}) {
    std::barrier<> together(2);
    sync_ranks(2, [&](RankWorld& world) {
      std::vector<at::Tensor> p;
      std::vector<NamedTensor> list;
      for (int i = 0; i < 5; ++i) {
        p.push_back(parameter(at::ones({4})));
        list.push_back({"p" + std::to_string(i), p.back()});
      }
      SyncOptions options = world.options("wfbp");
      options.order = order;
      GradientSync sync(list, {}, world.comm, options);
      for (int step = 0; step < 2; ++step) {
        // p4 is the first bucket of the plan, and takes no part in step 1.
        backward(sync, [&] {
          at::Tensor y = at::ones({4});
          for (int i = 0; i < 5 - step; ++i) {
            y = y * p[static_cast<std::size_t>(i)];
            y.register_hook([&](const at::Tensor&) { together.arrive_and_wait(); });
          }
          return y.sum();
        });
        sgd(p, 0);
      }
      Seconds backward_end = 0;
      const Trace trace = sync.trace();
      for (const Event& event : trace)
        if (event.step == 1 && event.kind == OpKind::backward)
          backward_end = std::max(backward_end, event.end_s);
      const auto early = std::count_if(trace.begin(), trace.end(), [&](const Event& event) {
        return event.step == 1 && event.kind == OpKind::exchange && event.begin_s < backward_end;
      });
      EXPECT_TRUE(order == "plan" ? early == 0 : early >= 2)
          << order << ": " << early << " of the four have started before p4 was known to be unused";
    });
  }
}

TEST(AgreedOrder, ARankThatDoesNotComeIsNamedWithTheBucket) {
  const Watchdog watchdog;
  std::barrier<> end(2);
  const auto errors = sync_errors(
      2,
      [&](RankWorld& world) {
        auto w = parameter(at::ones({3}));
        SyncOptions options = world.options();
        options.order = "agreed";
        GradientSync sync({{"w", w}}, {}, world.comm, options);
        backward(sync, [&] { return w.sum(); });
        try {
          if (world.rank == 0) backward(sync, [&] { return w.sum(); });
        } catch (...) {
          end.arrive_and_wait();
          throw;
        }
        end.arrive_and_wait();
      },
      0.5);
  EXPECT_EQ(errors[1], "");
  for (const char* words : {"CommError", "of step 1", "waiting to start 'exchange 0 (bucket 0",
                            "'w'", "agreement on what is ready", "rank 1"})
    EXPECT_NE(errors[0].find(words), std::string::npos) << errors[0];
}

TEST(AgreedOrder, ABackwardThatFailsAfterAnAgreementEndsTheGroup) {
  const Watchdog watchdog;
  const auto errors = sync_errors(2, [](RankWorld& world) {
    auto a = parameter(at::ones({3})), b = parameter(at::ones({3}));
    SyncOptions options = world.options("wfbp");
    options.order = "agreed";
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, options);
    for (int step = 0; step < 2; ++step)
      backward(sync, [&] {
        at::Tensor y = a * 2;
        if (world.rank == 0 && step == 1)
          y.register_hook([](const at::Tensor&) -> at::Tensor { throw DataError("no memory"); });
        return (y * b).sum();
      });
  });
  EXPECT_EQ(errors[0], "DataError: no memory");
  EXPECT_NE(errors[1].find("CommError"), std::string::npos) << errors[1];
  EXPECT_NE(errors[1].find("rank 0"), std::string::npos) << errors[1];

  // The rank that goes on all the same is told what it has done.
  auto comms = make_local(2, 1);
  std::barrier<> together(2);
  ranks_as_threads(2, [&](Rank rank) {
    at::set_num_threads(1);
    auto a = parameter(at::ones({3})), b = parameter(at::ones({3}));
    SyncOptions options{.grouping = "wfbp", .order = "agreed"};
    GradientSync sync({{"a", a}, {"b", b}}, {}, *comms[static_cast<std::size_t>(rank)], options);
    backward(sync, [&] { return (a * b).sum(); });
    if (rank == 0) {
      sync.begin();
      at::Tensor y = a * 2;
      y.register_hook([](const at::Tensor&) -> at::Tensor { throw DataError("no memory"); });
      EXPECT_THROW((y * b).sum().backward(), DataError);
      TW_EXPECT_THROW(sync.begin(), CommError, "after its exchange had begun");
    }
    together.arrive_and_wait();
  });
}

TEST(AgreedOrder, RanksWithoutABatchAndStepsThatOnlyAddUp) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    auto a = parameter(at::ones({3})), b = parameter(at::ones({2}));
    SyncOptions options = world.options("wfbp");
    options.order = "agreed";
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, options);
    for (int step = 0; step < 3; ++step) {
      {
        const NoSync local(sync);
        backward(sync, [&] { return a.sum(); });
      }
      const bool without = step == 1 && world.rank == 2;
      sync.set_samples(without ? 0 : 5);
      if (without) {
        a.mutable_grad().reset();
        sync.join_without_batch();
      } else {
        backward(sync, [&] { return a.sum() + (b * (world.rank + 1)).sum(); });
      }
      EXPECT_TRUE(all_equal(a.grad(), 2)) << a.grad();
      EXPECT_TRUE(all_equal(b.grad(), step == 1 ? 1.5 : 2)) << b.grad();
      sgd({a, b}, 0);
    }
  });
}

TEST(AgreedOrder, GoesOnAfterAChangeOfFormOrModel) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto a = parameter(at::ones({3})), b = parameter(at::ones({2}));
    SyncOptions options = world.options("wfbp");
    options.order = "agreed";
    GradientSync sync({{"a", a}, {"b", b}}, {}, world.comm, options);
    for (int step = 0; step < 8; ++step) {
      if (step == 2) sync.set_form("cast{f16}");
      if (step == 6) b.requires_grad_(false);
      backward(sync, [&] { return (a * (world.rank + 1)).sum() + (b * (world.rank + 3)).sum(); });
      EXPECT_TRUE(all_equal(a.grad(), 1.5)) << step << ": " << a.grad();
      EXPECT_TRUE(step < 6 ? all_equal(b.grad(), 3.5) : !b.grad().defined()) << step;
      sgd({a, b}, 0);
    }
  });
}

TEST(AgreedOrder, IsRefusedWhereItIsMisspeltOrDiffers) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    auto w = parameter(at::ones({3}));
    const auto make = [&](const std::string& order) {
      SyncOptions options = world.options();
      options.order = order;
      GradientSync sync({{"w", w}}, {}, world.comm, options);
    };
    TW_EXPECT_THROW(make("agree"), ConfigError, "order must be plan or agreed, got 'agree'");
    TW_EXPECT_THROW(
        make(world.rank == 0 ? "plan" : "agreed"), ConfigError,
        "the order of buckets differs between ranks: rank 0 has plan, rank 1 has agreed");
  });
}

}  // namespace thinwire::test
