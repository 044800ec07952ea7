// SPDX-License-Identifier: Apache-2.0
// Known failures that speak of every codec there is, and of two models in one process.
#include "tests/exchange/one_exchange.h"

namespace thinwire::test {
namespace {

/// A codec with what it cannot do without.
std::string spec_of(const std::string& name) { return name == "cast" ? "cast{f16}" : name; }

/// Options of codecs as their help lists them: names, and for numbers one at each end.
std::vector<std::string> variants_of(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> all{
      {"autoencoder",
       {"autoencoder{dense=0,train=1,width=2}", "autoencoder{count=3,dense=1,train=1,width=2}",
        "autoencoder{form=server,ratio=0.1,dense=0,train=1,width=2}",
        "autoencoder{form=server,count=3,dense=1,train=1,width=2,innovation=1}"}},
      {"cast", {"cast{f16}", "cast{bf16}"}},
      {"chunk_dct",
       {"chunk_dct{chunk=7}", "chunk_dct{count=1}", "chunk_dct{bits=2}", "chunk_dct{bits=8}",
        "chunk_dct{average=all}"}},
      {"chunk_topk",
       {"chunk_topk{chunk=7,count=2}", "chunk_topk{count=4096}", "chunk_topk{bits=8}",
        "chunk_topk{bits=32}", "chunk_topk{average=senders}"}},
      {"pca",
       {"pca{block=7,keep=7,collect=1,use=2}", "pca{block=64,keep=3,collect=2,use=1}",
        "pca{collect=1,use=1}"}},
      {"powersgd", {"powersgd{rank=3}", "powersgd{rounds=1}", "powersgd{gain=2}"}},
      {"qsgd", {"qsgd{bits=2}", "qsgd{bits=8}", "qsgd{block=8}"}},
      {"randk", {"randk{ratio=1}", "randk{count=3}", "randk{unbiased=yes}"}},
      {"sign", {"sign{scale=mean}", "sign{scale=vote}"}},
      {"threshold",
       {"threshold{method=trimmed}", "threshold{method=binary_search}", "threshold{ratio=1}",
        "threshold{count=3}", "threshold{life=2}", "threshold{values=mean}",
        "threshold{value=0.5}"}},
      {"topk",
       {"topk{ratio=1}", "topk{count=3}", "topk{ratio=0.1,warmup=3}", "topk{ratio=adaptive}",
        "topk{ratio=adaptive,mean=0.2,window=2}"}}};
  std::vector<std::string> out{spec_of(name)};
  if (const auto found = all.find(name); found != all.end())
    out.insert(out.end(), found->second.begin(), found->second.end());
  return out;
}

/// A linear layer with its gradients' exchange.
struct Layer {
  at::Tensor w, b;
  GradientSync sync;
  Layer(RankWorld& world, const std::string& form, double seed)
      : w(parameter(at::sin(at::arange(16, at::kFloat) + seed).view({4, 4}))),
        b(parameter(at::cos(at::arange(4, at::kFloat) + seed))),
        sync({{"weight", w}, {"bias", b}}, {}, world.comm, options(world, form)) {}
  static SyncOptions options(RankWorld& world, const std::string& form) {
    SyncOptions out = world.options();
    out.form = form;
    return out;
  }
  void step(Rank rank, int step) {
    const at::Tensor x = at::sin(at::arange(12, at::kFloat) * (1.1 + rank) + step).view({3, 4});
    backward(sync, [&] { return at::linear(x, w, b).square().sum(); });
    sgd({w, b}, 0.05);
  }
};

bool same(const Layer& a, const Layer& b) { return at::equal(a.w, b.w) && at::equal(a.b, b.b); }

}  // namespace

TEST_P(KnownFailures, KF15_EveryShapeWithEveryCodec) {
  const Watchdog watchdog;
  sync_ranks(
      3,
      [](RankWorld& world) {
        for (const auto& name : codecs().names())
          for (const std::vector<std::int64_t>& shape :
               std::vector<std::vector<std::int64_t>>{{}, {1}, {7}, {3, 5}, {2, 3, 5, 7}, {1031}}) {
            OneExchange one(world.comm, {{"x", DType::f32, shape}}, spec_of(name));
            std::int64_t n = 1;
            for (const std::int64_t extent : shape) n *= extent;
            const at::Tensor i = at::arange(n, at::kFloat).view(shape);
            const at::Tensor out = one.step(i * (world.rank + 1));
            EXPECT_EQ(out.sizes(), at::IntArrayRef(shape)) << name;
            EXPECT_TRUE(out.isfinite().all().item<bool>()) << name;
            if (name == "none") {
              EXPECT_TRUE(at::equal(out, 2 * i));
            }
          }
      },
      10);
}

TEST_P(KnownFailures, KF26_EveryListedCodecRuns) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    for (const auto& name : codecs().names()) {
      OneExchange one(world.comm, {{"x", DType::f32, {1024}}}, spec_of(name));
      const at::Tensor out = one.step(at::sin(at::arange(1024, at::kFloat) + world.rank));
      EXPECT_TRUE(out.isfinite().all().item<bool>()) << name;
    }
  });
}

TEST_P(KnownFailures, KF27_EveryOptionOnALengthThatIsNoSquare) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        for (const auto& name : codecs().names())
          for (const std::string& spec : variants_of(name)) {
            OneExchange one(world.comm, {{"x", DType::f32, {1000}}}, "ef|" + spec);
            for (int step = 0; step < 4; ++step) {
              const at::Tensor out =
                  one.step(at::sin(at::arange(1000, at::kFloat) + step + world.rank));
              ASSERT_EQ(out.numel(), 1000) << spec;
              EXPECT_TRUE(out.isfinite().all().item<bool>()) << spec;
              ASSERT_EQ(one.residual("x").numel(), 1000) << spec << ": no padding stays behind";
              EXPECT_TRUE(one.residual("x").isfinite().all().item<bool>()) << spec;
            }
          }
      },
      10);
}

TEST_P(KnownFailures, KF47_AGeneratorAndACritic) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Layer generator_alone(world, "none", 0), critic_alone(world, "ef|topk{ratio=0.25}", 5);
    for (int t = 0; t < 4; ++t) generator_alone.step(world.rank, t);
    for (int t = 0; t < 3; ++t) critic_alone.step(world.rank, t);
    Layer generator(world, "none", 0);
    {
      Layer critic(world, "ef|topk{ratio=0.25}", 5);
      for (int t = 0; t < 3; ++t) {
        generator.step(world.rank, t);
        critic.step(world.rank, t);
      }
      EXPECT_TRUE(same(critic, critic_alone));
      const auto kept = critic.sync.form_state(), alone = critic_alone.sync.form_state();
      ASSERT_EQ(kept.size(), alone.size());
      for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_TRUE(at::equal(kept[i].tensor, alone[i].tensor)) << kept[i].name;
    }
    generator.step(world.rank, 3);  // the other one is gone
    EXPECT_TRUE(same(generator, generator_alone));
  });
}

TEST_P(KnownFailures, KF47_TwoParameterSetsOfOneModel) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Layer whole(world, "ef|topk{ratio=0.5}", 0), parts(world, "none", 0);
    const auto options = Layer::options(world, "ef|topk{ratio=0.25}");
    const auto other = Layer::options(world, "ef|sign");
    GradientSync weights({{"weight", parts.w}}, {}, world.comm, options);
    GradientSync biases({{"bias", parts.b}}, {}, world.comm, other);
    at::Tensor w = parameter(parts.w), b = parameter(parts.b);
    GradientSync w_alone({{"weight", w}}, {}, world.comm, options);
    GradientSync b_alone({{"bias", b}}, {}, world.comm, other);
    const at::Tensor x = at::sin(at::arange(4, at::kFloat) + world.rank);
    for (int t = 0; t < 3; ++t) {
      backward(weights, [&] { return (parts.w.matmul(x) * (t + 1)).sum(); });
      sgd({parts.w}, 0.1);
      backward(biases, [&] { return (parts.b * x).sum(); });
      sgd({parts.b}, 0.1);
      backward(w_alone, [&] { return (w.matmul(x) * (t + 1)).sum(); });
      sgd({w}, 0.1);
      backward(b_alone, [&] { return (b * x).sum(); });
      sgd({b}, 0.1);
    }
    EXPECT_TRUE(at::equal(parts.w, w));
    EXPECT_TRUE(at::equal(parts.b, b));
  });
}

// Selections of different lengths on each rank, none among them, in one all-gather.
TEST(VaryingPayloads, RanksSendDifferentNumbersOfValues) {
  const Watchdog watchdog;
  for (const std::string form : {"threshold{value=10}", "ef|threshold{value=10}"})
    sync_ranks(3, [&](RankWorld& world) {
      OneExchange one(world.comm, {{"x", DType::f32, {60}}}, form);
      const auto of = [&](int rank, int step) {  // rank r sends r values in even steps, else none
        at::Tensor x = at::zeros({60});
        for (int i = 0; i < rank && step % 2 == 0; ++i) x[i * 7] = 30 + i;
        return x;
      };
      for (int step = 0; step < 4; ++step) {
        const at::Tensor want = (of(0, step) + of(1, step) + of(2, step)) / 3;
        EXPECT_TRUE(at::equal(one.step(of(world.rank, step)), want)) << form << step;
      }
    });
}

TEST(VaryingPayloads, AllRanksGetTheSameAndNothingIsLost) {
  const Watchdog watchdog;
  for (int n = 1; n <= 3; ++n)
    for (const std::string codec :
         {"threshold{ratio=0.05,life=3}", "threshold{method=trimmed,ratio=0.05}",
          "threshold{method=binary_search,ratio=0.05,life=2}", "threshold{ratio=0.1,values=mean}",
          "threshold{value=1.5}", "topk{ratio=adaptive,mean=0.05,window=5}",
          "topk{ratio=0.01,warmup=4}", "chunk_topk{chunk=50,count=5,bits=4}",
          "chunk_dct{count=8,average=all}", "pca{block=10,keep=3,collect=2,use=2}",
          "autoencoder{ratio=0.1,dense=2,train=1000000,width=2}",
          "autoencoder{form=server,ratio=0.1,dense=2,train=1000000,width=2}"})
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
        sync_ranks(n, [&](RankWorld& world) {
          OneExchange one(world.comm, {{"a", dtype, {20, 30}}, {"b", dtype, {7}}}, "ef|" + codec);
          const auto type = dtype == DType::f64    ? at::kDouble
                            : dtype == DType::bf16 ? at::kBFloat16
                                                   : at::kFloat;
          at::Tensor made = at::zeros({607}, at::kDouble), got = made.clone();
          for (int step = 0; step < 8; ++step) {
            const at::Tensor g = at::randn({607}, at::kDouble).to(type);
            made += g.to(at::kDouble);
            const at::Tensor out = one.step(g);
            got += out.to(at::kDouble);
            must_agree(*world.comm.membership(), "what came out",
                       std::to_string(out.to(at::kDouble).sum().item<double>()));
          }
          at::Tensor left = at::cat({one.residual("a"), one.residual("b")}).to(at::kDouble);
          for (at::Tensor* each : {&left, &made})
            world.comm.all_reduce({}, {each->data_ptr(), 607, DType::f64, -1}, Combine::mean)
                .wait();
          EXPECT_LT((got + left - made).abs().max().item<double>(),
                    dtype == DType::bf16 ? 0.2 : 1e-4)
              << codec << " " << to_string(dtype) << " " << n;
        });
}

}  // namespace thinwire::test
