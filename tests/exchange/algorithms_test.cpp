// SPDX-License-Identifier: Apache-2.0
// Every algorithm gives the bits of a sum in rank order that is divided once, for every form.
#include <ATen/CPUGeneratorImpl.h>

#include <limits>

#include "tests/train/sync_ranks.h"
#include "thinwire/exchange/exchanger.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire::test {
namespace {

/// Halves are sent as they are, as two payload parts: not the input itself, and no memory of its.
class TwoParts : public Codec {
 public:
  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return 0; }
  Payload encode(const Tensor& x, const Slot&) override {
    const std::int64_t half = x.numel() / 2;
    return {.parts = {x.narrow(0, 0, half).clone(), x.narrow(0, half, x.numel() - half).clone()}};
  }
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor x = at::cat(payload.parts);
    out = mode == Write::set ? x : out + x;
  }
};

const bool kAdded = [] {
  add_codec(
      "two_parts",
      [](const Spec&, std::span<const TensorDesc>) { return std::make_unique<TwoParts>(); },
      "test");
  return true;
}();

Plan plan_of(std::int64_t count, DType dtype, int ranks, const std::string& form,
             const std::string& algorithm) {
  PlanBuilder builder({.tensors = {{"x", dtype, {count}}},
                       .grouping = {{{{0, 0, count}}}},
                       .ranks = ranks,
                       .form = parse_chain(form),
                       .algorithm = algorithm});
  declare_gradient_mean(builder);
  return builder.plan();
}

at::Tensor numbers(Rank rank, std::int64_t count, at::ScalarType dtype) {
  return at::randn({count},
                   at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(rank + 1)),
                   at::TensorOptions(at::kDouble))
      .to(dtype);
}

}  // namespace

TEST(Algorithms, EqualTheSumInRankOrder) {
  const Watchdog watchdog;
  ASSERT_TRUE(kAdded);
  const std::vector<std::pair<at::ScalarType, DType>> dtypes{
      {at::kFloat, DType::f32}, {at::kDouble, DType::f64}, {at::kBFloat16, DType::bf16}};
  for (int n = 1; n <= 4; ++n)
    sync_ranks(n, [&](RankWorld& world) {
      for (const auto& [type, dtype] : dtypes)
        for (const std::int64_t count : {1, 3, 1000, 20011})
          for (const auto& [form, algorithm] :
               {std::pair{"none", "direct"}, std::pair{"none", "gather"},
                std::pair{"none", "shard"}, std::pair{"two_parts", "gather"},
                std::pair{"two_parts", "shard"}}) {
            if (type == at::kBFloat16 && std::string(form) != "none") continue;
            Recorder recorder(world.rank);
            Exchanger exchanger(world.comm, plan_of(count, dtype, n, form, algorithm), recorder);
            at::Tensor sum = numbers(0, count, type).to(type == at::kDouble ? type : at::kFloat);
            for (Rank rank = 1; rank < n; ++rank) sum = sum + numbers(rank, count, type);
            const at::Tensor expected = (n == 1 ? sum : sum / n).to(type);
            for (std::int64_t step = 0; step < 2; ++step) {
              at::Tensor data = numbers(world.rank, count, type);
              exchanger.start(0, data, {.step = step});
              exchanger.wait(0);
              EXPECT_TRUE(at::equal(data, expected))
                  << n << " ranks, " << count << " " << to_string(dtype) << ", " << form << ", "
                  << algorithm;
            }
          }
    });
}

TEST(Algorithms, AreRefusedInWords) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    Recorder recorder(world.rank);
    const auto make = [&](const std::string& form, const std::string& algorithm) {
      Exchanger(world.comm, plan_of(5, DType::f32, 2, form, algorithm), recorder);
    };
    TW_EXPECT_THROW(make("none", "gatherr"), ConfigError, "'gather'");
    TW_EXPECT_THROW(make("none", "tree"), UnsupportedError, "there are direct, gather and shard");
    TW_EXPECT_THROW(make("two_parts", "direct"), UnsupportedError, "do not add");
    auto w = parameter(at::ones({3}));
    TW_EXPECT_THROW(GradientSync({{"w", w}}, {}, world.comm, {.algorithm = "dirct"}), ConfigError,
                    "'direct'");
  });
}

}  // namespace thinwire::test
