// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
