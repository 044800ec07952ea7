// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> cast(const std::string& spec, std::int64_t n) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {n}}};
  return codecs().find("cast").make(parse_spec(spec), descs);
}

}  // namespace

TEST(Cast, RoundsToNearest) {
  const at::Tensor x = at::tensor({1.0f, 1.0f / 3, -65504.0f, 5.9604645e-8f, 0.0f});
  for (const auto& [spec, type] :
       {std::pair{"cast{f16}", at::kHalf}, std::pair{"cast{bf16}", at::kBFloat16}}) {
    const auto codec = cast(spec, 5);
    const Payload payload = codec->encode(x, {});
    EXPECT_EQ(payload.bytes(), 10);
    EXPECT_EQ(codec->max_bytes(), 10);
    at::Tensor out;
    codec->decode(payload, out, Write::set);
    EXPECT_TRUE(at::equal(out, x.to(type).to(at::kFloat)));
    codec->decode(payload, out, Write::add);
    EXPECT_TRUE(at::equal(out, 2 * x.to(type).to(at::kFloat)));
  }
}

// Halves are added by vectors into single precision, which reads less memory than floats do.
TEST(Cast, KF28_HalvesAreNoSlowerToAddThanFloats) {
  constexpr std::int64_t kCount = 10'020'874;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto halves = cast("cast{f16}", kCount);
  const std::vector<TensorDesc> descs{{"w", DType::f32, {kCount}}};
  const auto floats = codecs().find("none").make(parse_spec("none"), descs);
  const at::Tensor x = at::ones({kCount});
  const Payload half = halves->encode(x, {}), whole = floats->encode(x, {});
  at::Tensor sum = at::zeros({kCount});
  const auto seconds = [&](Codec& codec, const Payload& payload) {
    const auto begin = std::chrono::steady_clock::now();
    codec.decode(payload, sum, Write::add);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double ratio = 0;
  for (int attempt = 0; attempt < 15; ++attempt) {  // others may have the machine for a while
    std::array<double, 5> of_half{}, of_whole{};
    for (std::size_t i = 0; i < 5; ++i) {
      of_half[i] = seconds(*halves, half);
      of_whole[i] = seconds(*floats, whole);
    }
    std::sort(of_half.begin(), of_half.end());
    std::sort(of_whole.begin(), of_whole.end());
    ratio = of_half[2] / of_whole[2];
    if (ratio <= 1) break;
  }
  at::set_num_threads(threads);
  EXPECT_LE(ratio, 1);
}

TEST(Cast, WantsAType) {
  TW_EXPECT_THROW(cast("cast", 1), ConfigError, "write cast{f16} or cast{bf16}");
  TW_EXPECT_THROW(cast("cast{f32}", 1), ConfigError, "cast{bf16}");
}

}  // namespace thinwire
