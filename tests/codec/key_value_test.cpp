// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::one_tensor;

namespace {

/// One in a hundred, over six orders of magnitude.
at::Tensor sparse(std::int64_t n) {
  at::Tensor x = at::randn({n}) * at::exp(at::randn({n}) * 3);
  return x.mul_(at::rand({n}).lt(0.01));
}

at::Tensor key_value_of(const std::string& spec, const at::Tensor& x) {
  const auto codec = one_tensor(spec, x.numel());
  at::Tensor out;
  codec->decode(codec->encode(x, {}), out, Write::set);
  return out;
}

}  // namespace

TEST(KeyValue, ErrorsAreThoseOfTheBase) {
  // sqrt(b) - 1 relatively for what is sent; what is not is below M b^-levels.
  const at::Tensor x = at::randn({200'000}).mul_(at::rand({200'000}).lt(0.01));
  const double largest = x.abs().max().item<double>();
  for (const auto& [base, percent] : {std::pair{1.1, 4.9}, {1.5, 22.5}, {2.0, 41.4}}) {
    EXPECT_NEAR(100 * (std::sqrt(base) - 1), percent, 0.05);
    const at::Tensor out =
        key_value_of(fmt::format("key_value{{base={},levels=15}}", base), x).to(at::kDouble);
    const at::Tensor wide = x.to(at::kDouble), sent = out.ne(0);
    const at::Tensor error = ((out - wide) / wide).masked_select(sent).abs();
    EXPECT_GT(error.numel(), 10);
    EXPECT_LE(error.max().item<double>(), std::sqrt(base) - 1 + 1e-6);
    const at::Tensor dropped = wide.masked_select(sent.logical_not()).abs();
    EXPECT_LT(dropped.max().item<double>(), std::pow(base, -15) * largest);
  }
  EXPECT_NEAR(std::pow(1.5, -15), 0.0023, 5e-5);
}

TEST(KeyValue, KeysAreExactAndSignsKept) {
  const at::Tensor x = sparse(100'000);
  const at::Tensor out = key_value_of("key_value{base=1.01,levels=32767}", x);
  EXPECT_TRUE(at::equal(out.ne(0), x.ne(0))) << "nothing is dropped";
  EXPECT_TRUE(at::equal(out.sign(), x.sign()));
}

TEST(KeyValue, ManyLevelsOfASmallBaseLoseAlmostNothing) {
  const at::Tensor x = sparse(100'000);
  const at::Tensor out = key_value_of("key_value{base=1.001,levels=32767}", x);
  EXPECT_LE(((out - x) / x).masked_select(x.ne(0)).abs().max().item<double>(), 5.1e-4);
}

TEST(KeyValue, BytesAreThoseOfWhatIsSent) {
  const auto codec = one_tensor("key_value", 100'000);
  EXPECT_EQ(codec->encode(at::zeros({100'000}), {}).bytes(), 12);
  at::Tensor x = at::zeros({100'000});
  x.narrow(0, 5, 800).fill_(1);  // consecutive keys need no bits but their flags
  EXPECT_LE(codec->encode(x, {}).bytes(), 12 + 200 + 1 + 800 * 5 / 8);
  const at::Tensor some = sparse(100'000);
  const auto kept = static_cast<double>(some.ne(0).sum().item<std::int64_t>());
  EXPECT_LE(static_cast<double>(codec->encode(some, {}).bytes()), 12 + kept * (9.2 + 5) / 8);
}

TEST(KeyValue, UnderAMemoryNothingGetsLost) {
  const auto codec = one_tensor("key_value{base=2,levels=3}", 5000);
  at::Tensor memory = at::zeros({5000}), made = at::zeros({5000}), sent = at::zeros({5000});
  for (int step = 0; step < 20; ++step) {
    const at::Tensor g = sparse(5000).clamp(-5, 5);
    made += g;
    memory += g;
    const Payload payload = codec->encode(memory, {.step = step});
    codec->decode(payload, sent, Write::add);
    codec->residual(memory, payload, memory);
  }
  EXPECT_LE((sent + memory - made).abs().max().item<double>(), 1e-4);
}

TEST(KeyValue, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("key_value{base=1}", 1), ConfigError, "(1, 16], got 1");
  TW_EXPECT_THROW(one_tensor("key_value{levels=40000}", 1), ConfigError, "[0, 32767]");
}

}  // namespace thinwire
