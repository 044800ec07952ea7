// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"

namespace thinwire {

using test::one_tensor;

namespace {

at::Tensor bounded_of(const std::string& spec, const at::Tensor& x, Bytes* bytes = nullptr) {
  const auto codec = one_tensor(spec, x.numel());
  const Payload payload = codec->encode(x, {});
  if (bytes != nullptr) *bytes = payload.bytes();
  at::Tensor out;
  codec->decode(payload, out, Write::set);
  return out;
}

}  // namespace

TEST(ErrorBounded, EveryValueIsWithinTheBound) {
  const at::Tensor x = at::randn({10'000}) * at::exp(at::arange(10'000) / 700 - 8);
  for (const double bound : {10.0, 0.1, 1e-3, 1e-6}) {
    const at::Tensor out =
        bounded_of(fmt::format("error_bounded{{bound={},relative=no}}", bound), x);
    EXPECT_LE((out - x).to(at::kDouble).abs().max().item<double>(), bound);
  }
  const double largest = x.abs().max().item<double>();
  EXPECT_LE((bounded_of("error_bounded{bound=0.01}", x) - x).abs().max().item<double>(),
            0.01 * largest);
}

TEST(ErrorBounded, ZerosStayZerosAndCostABitOrNothing) {
  at::Tensor x = at::randn({6400});
  x.masked_fill_(x.lt(0), 0);
  EXPECT_TRUE(bounded_of("error_bounded", x).masked_select(x.eq(0)).eq(0).all().item<bool>());
  Bytes bytes = 0;
  bounded_of("error_bounded", at::zeros({6400}), &bytes);
  EXPECT_EQ(bytes, 4 + 100) << "a byte for each 64";
}

TEST(ErrorBounded, WithoutABoundNothingIsLost) {
  const at::Tensor x = at::randn({1000});
  EXPECT_TRUE(at::equal(bounded_of("error_bounded{bound=0}", x), x));
}

TEST(ErrorBounded, ALooserBoundHasFewerBytes) {
  const at::Tensor x = at::randn({6400});
  Bytes last = 0;
  for (const char* bound : {"0.5", "0.1", "0.01", "0.001"}) {
    Bytes bytes = 0;
    bounded_of(std::string("error_bounded{bound=") + bound + "}", x, &bytes);
    EXPECT_GT(bytes, last);
    last = bytes;
  }
  EXPECT_LE(last, 4 + 100 + 6400 * 11 / 8) << "a thousandth of the largest: ten bits and a sign";
}

TEST(ErrorBounded, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("error_bounded{bound=-1}", 1), ConfigError, "at least 0");
}

}  // namespace thinwire
