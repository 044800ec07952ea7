// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/memory.h"

namespace thinwire {
namespace {

const std::vector<TensorDesc> kFour{{"w", DType::f32, {4}}};

struct Chain {
  std::unique_ptr<Memory> ef;
  std::unique_ptr<Codec> codec = codecs().find("topk").make(parse_spec("topk{count=1}"), kFour);
  explicit Chain(const std::string& spec = "ef")
      : ef(memories().find("ef").make(parse_spec(spec), kFour)) {}
  /// What travels of one step, decoded.
  at::Tensor step(const at::Tensor& produced) {
    at::Tensor x = produced;
    ef->before(x, {});
    const Payload payload = codec->encode(x, {});
    at::Tensor out;
    codec->decode(payload, out, Write::set);
    ef->sent(x, Sent({{codec.get(), &payload, 0, 4}}), {});
    return out;
  }
};

struct Look : StateVisitor {
  at::Tensor found;
  void tensor(const std::string&, at::Tensor&) override {}
  void integer(const std::string&, std::int64_t&) override {}
  void elements(const std::string& name, at::Tensor& value) override {
    EXPECT_EQ(name, "residual");
    found = value;
  }
};

at::Tensor four(float a, float b, float c, float d) { return at::tensor({a, b, c, d}); }

}  // namespace

TEST(Ef, AddsWhatWasNotSent) {
  Chain chain;
  const at::Tensor g = four(1, 2, 3, 4);
  EXPECT_TRUE(at::equal(chain.step(g), four(0, 0, 0, 4)));
  EXPECT_TRUE(at::equal(chain.step(g), four(0, 0, 6, 0)));
  Look look;
  chain.ef->visit_state(look);
  EXPECT_TRUE(at::equal(look.found, four(2, 4, 0, 4)));
  EXPECT_TRUE(at::equal(g, four(1, 2, 3, 4))) << "the caller's memory is not written to";
}

TEST(Ef, KeepsEverythingWhereNothingIsSent) {
  Chain chain;
  at::Tensor x = four(1, 2, 3, 4);
  chain.ef->before(x, {});
  chain.ef->sent(x, Sent(), {});
  EXPECT_TRUE(at::equal(chain.step(four(1, 1, 1, 1)), four(0, 0, 0, 5)));
}

TEST(Ef, TakesAStepBack) {
  Chain chain;
  chain.step(four(1, 2, 3, 4));
  const at::Tensor g = four(5, 7, 9, 11);
  const at::Tensor own = chain.step(g);
  chain.ef->take_back(g, own, {});
  Look look;
  chain.ef->visit_state(look);
  EXPECT_TRUE(at::equal(look.found, four(1, 2, 3, 0)));
}

TEST(Ef, DecaysWhatIsLeft) {
  Chain chain("ef{decay=0.5}");
  chain.step(four(1, 2, 3, 4));
  EXPECT_TRUE(at::equal(chain.step(four(0, 0, 0, 0)), four(0, 0, 1.5, 0)));
  TW_EXPECT_THROW(Chain("ef{decay=2}"), ConfigError, "ef: decay must be in [0, 1], got 2");
}

namespace {

/// What is sent of gradients g(t), t from 1 on, where one step in `interval` sends, the first too.
std::vector<double> sent_of_one_in(int interval, const std::string& spec, int steps,
                                   const std::function<double(int)>& g, std::int64_t from = 0) {
  const std::vector<TensorDesc> one{{"w", DType::f64, {1}}};
  const auto ef = memories().find("ef").make(parse_spec(spec), one);
  const auto codec = codecs().find("none").make(parse_spec("none"), one);
  std::vector<double> out;
  for (int t = 0; t < steps; ++t) {
    const Slot slot{.step = from + t, .fires = t % interval == 0};
    at::Tensor x = at::full({1}, g(t + 1), at::kDouble);
    ef->before(x, slot);
    if (!slot.fires) {
      ef->sent(x, Sent(), slot);
      continue;
    }
    out.push_back(x.item<double>());
    const Payload payload = codec->encode(x, slot);
    ef->sent(x, Sent({{codec.get(), &payload, 0, 1}}), slot);
  }
  return out;
}

}  // namespace

// Meng, Sun 2023: gradients 1 to 7, one step in three sends.
TEST(Ef, RampDiscountsWhatIsSkippedTwice) {
  const auto rising = [](int t) { return t; };
  const std::vector<double> all{1, 9, 18}, half{1, 8, 15.5};
  EXPECT_EQ(sent_of_one_in(3, "ef", 7, rising), all);
  EXPECT_EQ(sent_of_one_in(3, "ef{schedule=ramp}", 7, rising), half) << "0.5 before step 50";
  EXPECT_EQ(sent_of_one_in(3, "ef{schedule=ramp}", 7, rising, 250), all) << "1 from step 250 on";
  const std::vector<double> decayed{1, 4 + 0.5 * (3 + 0.5 * 2), 7 + 0.5 * (6 + 0.5 * 5)};
  EXPECT_EQ(sent_of_one_in(3, "ef{schedule=ramp,sends=decayed}", 7, rising), decayed);
}

// Of gradients of 1, a step gains (1 + c^0 + ... + c^(I-2)) / I of the dense one.
TEST(Ef, RampHasTheGainsOfItsTable) {
  const auto ones = [](int) { return 1.0; };
  for (const auto& [interval, start, gain] : {std::tuple{2, "0.2", 1.0},
                                              {3, "0.2", 0.733},
                                              {3, "0.5", 0.833},
                                              {3, "0.8", 0.933},
                                              {4, "0.2", 0.560},
                                              {4, "0.5", 0.688},
                                              {4, "0.8", 0.860},
                                              {5, "0.2", 0.450},
                                              {5, "0.5", 0.575},
                                              {5, "0.8", 0.790},
                                              {8, "0.2", 0.281},
                                              {8, "0.5", 0.373},
                                              {8, "0.8", 0.619},
                                              {8, "1", 1.0}}) {
    const std::string spec = std::string("ef{schedule=ramp,every=1000,start=") + start + "}";
    EXPECT_NEAR(sent_of_one_in(interval, spec, 5 * interval, ones).back() / interval, gain, 6e-4)
        << interval << " " << start;
  }
}

TEST(Ef, RampRisesByATenthEvery50Steps) {
  const auto ones = [](int) { return 1.0; };
  for (const auto& [from, c] : {std::pair{0, 0.5}, {45, 0.5}, {49, 0.6}, {199, 0.9}, {400, 1.0}})
    EXPECT_NEAR(sent_of_one_in(3, "ef{schedule=ramp}", 4, ones, from).back(), 2 + c, 1e-12) << from;
  TW_EXPECT_THROW(Chain("ef{schedule=ramp,start=0}"), ConfigError,
                  "start must be in (0, 1], got 0");
  TW_EXPECT_THROW(Chain("ef{schedule=up}"), ConfigError, "constant or ramp, got 'up'");
  TW_EXPECT_THROW(Chain("ef{schedule=ramp,sends=no}"), ConfigError, "whole or decayed");
  TW_EXPECT_THROW(Chain("ef{start=0.1}"), ConfigError, "'start'");
}

TEST(Ef, RampTakesASkippedStepBack) {
  const auto ef = memories().find("ef").make(parse_spec("ef{schedule=ramp}"), kFour);
  const Slot skip{.fires = false};
  at::Tensor x = four(1, 2, 3, 4);
  ef->before(x, skip);
  ef->sent(x, Sent(), skip);
  const at::Tensor g = four(8, 8, 8, 8);
  x = g;
  ef->before(x, skip);
  ef->sent(x, Sent(), skip);
  ef->take_back(g, at::zeros({4}), skip);
  Look look;
  ef->visit_state(look);
  EXPECT_TRUE(at::equal(look.found, four(1, 2, 3, 4)));
}

// Karimireddy et al. 2019: the gradient is 4 with probability 1/4, else -1, so its mean is 1/4 and
// x should go down; the sign alone goes up three times of four.
TEST(Ef, MakesABiasedCodecFollowTheMean) {
  const auto codec = codecs().find("topk").make(parse_spec("topk{count=1}"), kFour);
  Chain with;
  at::Tensor sent = at::zeros({4}), alone = at::zeros({4});
  for (int t = 0; t < 400; ++t) {
    const at::Tensor g = four(t % 4 == 0 ? 4.f : -1.f, 0.5, 0.5, 0.5);
    sent += with.step(g);
    at::Tensor out;
    codec->decode(codec->encode(g, {}), out, Write::set);
    alone += out;
  }
  EXPECT_EQ(alone[1].item<float>(), 0) << "never the largest, and lost";
  EXPECT_NEAR(sent[0].item<float>(), 100, 8);
  EXPECT_NEAR(sent[1].item<float>(), 200, 8);
}

}  // namespace thinwire
