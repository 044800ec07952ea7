// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/kernels/indices.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> topk(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("topk").make(parse_spec(spec), descs);
}

at::Tensor floats(std::vector<float> values) { return at::tensor(values); }

}  // namespace

TEST(TopK, KeepsTheLargestAndOfEqualOnesTheFirst) {
  const auto codec = topk("topk{count=3}", 8);
  at::Tensor x = floats({1, -2, 2, 0, -2, 5, 2, 1});
  const Payload payload = codec->encode(x, {});
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, floats({0, -2, 2, 0, 0, 5, 0, 0})));
  codec->residual(x, payload, x);
  EXPECT_TRUE(at::equal(x, floats({1, 0, 0, 0, -2, 0, 2, 1})));
}

TEST(TopK, AllZerosAndTiesSendExactlyK) {
  const auto codec = topk("topk{count=2}", 40);
  at::Tensor out;
  codec->decode(codec->encode(at::zeros({40}), {}), out, Write::set);
  EXPECT_TRUE(at::equal(out, at::zeros({40})));
  codec->decode(codec->encode(at::full({40}, -1.0f), {}), out, Write::set);
  EXPECT_EQ(out[0].item<float>(), -1);
  EXPECT_EQ(out[1].item<float>(), -1);
  EXPECT_EQ(out.sum().item<float>(), -2);
}

TEST(TopK, KF21_IsDenseWhereThatIsShorter) {
  EXPECT_EQ(topk("topk{ratio=0.97}", 1000)->max_bytes(), 4000) << "3,880 of values, 125 of bitmap";
  EXPECT_EQ(topk("topk{ratio=0.9}", 1000)->max_bytes(), 3600 + 125);
  const auto codec = topk("topk{ratio=0.97}", 1000);
  const at::Tensor x = at::arange(1000, at::kFloat);
  const Payload payload = codec->encode(x, {});
  EXPECT_EQ(payload.bytes(), 4000);
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  EXPECT_TRUE(at::equal(out, x));
}

TEST(TopK, OnePercentTakesFiveBytesAValue) {
  const std::int64_t n = 1'000'000, k = 10'000;
  EXPECT_LT(topk("topk{ratio=0.01}", n)->max_bytes(), k * 4 + k * 11 / 10);
}

TEST(TopK, RefusesOptions) {
  TW_EXPECT_THROW(topk("topk{ratio=1.5}", 4), ConfigError,
                  "topk: ratio must be in (0, 1], got 1.5");
  TW_EXPECT_THROW(topk("topk{ratio=0.1,count=2}", 4), ConfigError, "give one");
  TW_EXPECT_THROW(topk("topk{count=0}", 4), ConfigError, "count must be at least 1, got 0");
  TW_EXPECT_THROW(topk("topk{rato=0.1}", 4), ConfigError, "'ratio'");
}

TEST(TopK, PlansKnowTheBytesOfPositions) {
  for (const std::int64_t n : {1, 2, 7, 8, 9, 64, 65, 1000, 4099, 1 << 20})
    for (std::int64_t k = 1; k <= n; k = k * 3 + 1)
      EXPECT_EQ(position_bytes(n, k), kernels::index_bytes(n, k)) << k << " of " << n;
}

namespace {

/// One rank's steps: what is lost of each x, in all, and the bytes; without a memory.
struct Steps {
  double lost = 0;
  Bytes bytes = 0;
  std::vector<std::int64_t> counts;
};

Steps run(const std::string& spec, const std::vector<at::Tensor>& all) {
  const auto codec = topk(spec, all[0].numel());
  Steps out;
  for (std::size_t t = 0; t < all.size(); ++t) {
    const Payload payload = codec->encode(all[t], {.step = static_cast<std::int64_t>(t)});
    out.bytes += payload.bytes();
    at::Tensor value;
    codec->combine(std::span(&payload, 1), 1, value);
    out.counts.push_back(value.ne(0).sum().item<std::int64_t>());
    out.lost += (all[t] - value).square().sum().item<double>();
  }
  return out;
}

/// Gradients of changing size and shape: few large values, then flat ones, in turn and falling.
std::vector<at::Tensor> uneven(std::int64_t n, int steps) {
  std::vector<at::Tensor> out;
  for (int t = 0; t < steps; ++t) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(t));
    const at::Tensor x = at::randn({n}, generator, at::TensorOptions(at::kFloat));
    out.push_back((t / 10 % 2 == 0 ? x * x * x : x * 0.3) * std::exp(-t / 150.0));
  }
  return out;
}

}  // namespace

// Lin et al. 2018: 0.25, 0.063, 0.016, 0.004, and 0.001 from then on.
TEST(TopK, WarmsUpInFourStages) {
  const auto codec = topk("topk{ratio=0.001,warmup=40}", 100'000);
  const at::Tensor x = at::arange(1, 100'001, at::kFloat);
  at::Tensor out;
  for (const auto& [step, k] : {std::pair{0, 25'118},
                                {9, 25'118},
                                {10, 6309},
                                {20, 1584},
                                {39, 398},
                                {40, 100},
                                {4000, 100}}) {
    codec->decode(codec->encode(x, {.step = step}), out, Write::set);
    EXPECT_NEAR(static_cast<double>(out.ne(0).sum().item<std::int64_t>()), k, 1) << step;
  }
  TW_EXPECT_THROW(topk("topk{warmup=0}", 4), ConfigError, "warmup must be at least 1 step, got 0");
}

// Ruan et al. 2022: two steps, six values in all. Of all divisions 2 + 4 loses least, and one bound
// for both steps finds it.
TEST(TopK, OneBoundForAllStepsDividesABudgetBest) {
  const std::vector<at::Tensor> steps{floats({8, 4, 2, 1, .5, .25, .12F, .06F}),
                                      floats({5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5})};
  const auto lost = [&](std::int64_t first, std::int64_t second) {
    return steps[0].narrow(0, first, 8 - first).square().sum().item<double>() +
           steps[1].narrow(0, second, 8 - second).square().sum().item<double>();
  };
  for (int first = 0; first <= 6; ++first) EXPECT_GE(lost(first, 6 - first), lost(2, 4) - 1e-6);
  EXPECT_NEAR(lost(2, 4), 26.8305, 1e-4);
  EXPECT_NEAR(lost(3, 3), 35.0805, 1e-4);
  const auto codec = codecs()
                         .find("threshold")
                         .make(parse_spec("threshold{value=3.5}"), {{{"w", DType::f32, {8}}}});
  at::Tensor out;
  for (const auto& [t, k] : {std::pair{0, 2}, {1, 4}}) {
    codec->decode(codec->encode(steps[static_cast<std::size_t>(t)], {}), out, Write::set);
    EXPECT_EQ(out.ne(0).sum().item<std::int64_t>(), k);
  }
}

TEST(TopK, AdaptiveSendsNoMoreBytesThanAFixedKOfTheSameError) {
  const std::int64_t n = 4000;
  const auto steps = uneven(n, 300);
  const Steps adaptive = run("topk{ratio=adaptive,mean=0.01}", steps);
  const Steps fixed = run("topk{count=40}", steps);
  EXPECT_LE(adaptive.bytes, fixed.bytes);
  EXPECT_LT(adaptive.lost, fixed.lost);
  // The fewest values of a fixed k that loses no more.
  std::int64_t k = 40;
  while (run("topk{count=" + std::to_string(k) + "}", steps).lost > adaptive.lost) ++k;
  EXPECT_LT(adaptive.bytes, run("topk{count=" + std::to_string(k) + "}", steps).bytes);
  const std::vector<at::Tensor> same(50, steps[0]);
  EXPECT_EQ(run("topk{ratio=adaptive,mean=0.01}", same).bytes, run("topk{count=40}", same).bytes);
}

TEST(TopK, AdaptiveKeepsItsBudget) {
  const auto steps = uneven(4000, 1000);
  const Steps adaptive = run("topk{ratio=adaptive,mean=0.01,window=50}", steps);
  std::int64_t spent = 0;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    spent += adaptive.counts[t];
    if ((t + 1) % 50 == 0) {
      EXPECT_LE(spent, static_cast<std::int64_t>(t + 1) * 40) << t;
    }
  }
  EXPECT_GE(static_cast<double>(spent), 0.99 * 1000 * 40);
}

TEST(TopK, AdaptiveIsSteadyOnConstantGradientsAndDenseAtOne) {
  const std::vector<at::Tensor> same(120, at::randn({4000}));
  for (const std::int64_t k : run("topk{ratio=adaptive,mean=0.01}", same).counts) EXPECT_EQ(k, 40);
  const Steps whole = run("topk{ratio=adaptive,mean=1}", same);
  EXPECT_EQ(whole.lost, 0);
  EXPECT_EQ(whole.bytes, 120 * 16'000);
  TW_EXPECT_THROW(topk("topk{ratio=adaptive,mean=2}", 4), ConfigError, "mean must be in (0, 1]");
  TW_EXPECT_THROW(topk("topk{ratio=adaptive,window=0}", 4), ConfigError, "window must be at least");
}

}  // namespace thinwire
