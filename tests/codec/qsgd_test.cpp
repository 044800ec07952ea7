// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> qsgd(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("qsgd").make(parse_spec(spec), descs);
}

}  // namespace

TEST(Qsgd, KF29_FourBitsAValue) {
  EXPECT_EQ(qsgd("qsgd{bits=4,block=1032}", 1025)->max_bytes(), 513 + 4);
  EXPECT_EQ(qsgd("qsgd{bits=4}", 10'020'874)->max_bytes(), 5'010'437 + 4 * 19573);
}

TEST(Qsgd, StaysWithinOneLevelAndKeepsWhatIsOne) {
  const auto codec = qsgd("qsgd{bits=4}", 1031);
  at::Tensor x = at::randn({1031});
  x[0] = 0;
  at::Tensor out;
  codec->decode(codec->encode(x, {.seed = 1}), out, Write::set);
  EXPECT_EQ(out[0].item<float>(), 0);
  for (std::int64_t begin = 0; begin < 1031; begin += 512) {
    const std::int64_t count = std::min<std::int64_t>(512, 1031 - begin);
    const at::Tensor part = x.narrow(0, begin, count);
    const double level = part.abs().max().item<double>() / 7;
    EXPECT_LE((out.narrow(0, begin, count) - part).abs().max().item<double>(), level * 1.0001);
  }
}

TEST(Qsgd, RanksDrawTheirOwnNumbers) {
  const auto codec = qsgd("qsgd{bits=4}", 1000);
  const at::Tensor x = at::randn({1000});
  at::Tensor a, b;
  codec->decode(codec->encode(x, {.seed = 1, .rank = 0}), a, Write::set);
  codec->decode(codec->encode(x, {.seed = 1, .rank = 1}), b, Write::set);
  EXPECT_FALSE(at::equal(a, b));
}

TEST(Qsgd, ReadsItsOptions) {
  TW_EXPECT_THROW(qsgd("qsgd{bits=9}", 1), ConfigError, "bits must be in [2, 8], got 9");
  TW_EXPECT_THROW(qsgd("qsgd{norm=max1}", 1), ConfigError, "max or l2");
}

}  // namespace thinwire
