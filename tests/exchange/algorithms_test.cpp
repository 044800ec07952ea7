// SPDX-License-Identifier: Apache-2.0
// Every algorithm gives the bits of a sum in rank order that is divided once, for every form.
#include <ATen/CPUGeneratorImpl.h>

#include <limits>

#include "tests/train/sync_ranks.h"
#include "thinwire/core/rng.h"
#include "thinwire/exchange/choice.h"
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

// All forms over hosts of one, two and three ranks, the last of which may be smaller: the bits of
// gather, and of `none`, whose sum is in another order, nearly. Events have the bytes sent.
TEST(Algorithms, TreeAndHierarchicalEqualGather) {
  const Watchdog watchdog;
  std::vector<std::string> forms{"ef|none"};
  for (const std::string& name : codecs().names())
    forms.push_back(name == "cast" ? "cast{bf16}" : name);
  for (const int n : {1, 2, 3, 5})
    sync_ranks(n, [&](RankWorld& world) {
      constexpr std::int64_t kElements = 600;
      const auto run = [&](const std::string& form, const std::string& algorithm, int size) {
        Recorder recorder(world.rank);
        Plan plan = plan_of(kElements, DType::f32, n, form, algorithm);
        plan.groups[0].topology = parse_spec("hierarchical{size=" + std::to_string(size) + "}");
        Exchanger exchanger(world.comm, plan, recorder);
        at::Tensor out;
        for (std::int64_t step = 0; step < 3; ++step) {
          out = numbers(world.rank, kElements, at::kFloat) * (1.0 + static_cast<double>(step));
          const Bytes before = exchanger.group(0).counters().payload_bytes;
          exchanger.start(0, out, {.step = step, .seed = 4});
          exchanger.wait(0);
          const Bytes sent = exchanger.group(0).counters().payload_bytes - before;
          if (algorithm == "tree" ||
              (algorithm == "hierarchical" && form.find("none") == form.npos)) {
            EXPECT_EQ(recorder.trace().back().bytes, sent) << form << " " << algorithm << " " << n;
          }
        }
        must_agree(*world.comm.membership(), form + " by " + algorithm,
                   std::to_string(hash_bytes(out.const_data_ptr(), 4 * kElements)));
        return out;
      };
      for (const std::string& form : forms) {
        const auto codec = codecs()
                               .find(parse_chain(form).back().name)
                               .make(parse_chain(form).back(),
                                     std::vector<TensorDesc>{{"x", DType::f32, {kElements}}});
        const CodecTraits traits = codec->traits();
        if (traits.merges) continue;
        const at::Tensor wanted = run(form, "gather", 1);
        const double most = 1e-6 * wanted.abs().max().item<double>();
        for (const int size : {1, 2, 3}) {
          if (!traits.fixed_size) continue;
          const at::Tensor got = run(form, "hierarchical", size);
          const double off = (got - wanted).abs().max().item<double>();
          EXPECT_LE(off, traits.identity ? most : 0) << form << " " << n << " " << size;
        }
        if (!traits.summable || traits.halves) continue;
        const double off = (run(form, "tree", 1) - wanted).abs().max().item<double>();
        EXPECT_LE(off, most) << form << " " << n;
      }
    });
}

// By the names of hosts: all ranks of the test share one.
TEST(Algorithms, HierarchicalKnowsHostsByName) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    Recorder recorder(world.rank);
    Exchanger exchanger(world.comm, plan_of(100, DType::bf16, 3, "none", "hierarchical"), recorder);
    at::Tensor data = at::full({100}, world.rank + 1, at::kBFloat16);
    exchanger.start(0, data, {});
    exchanger.wait(0);
    EXPECT_TRUE(all_equal(data, 2));
    EXPECT_EQ(recorder.trace().back().bytes, world.rank == 0 ? 2 * 400 : 200);
  });
}

TEST(Algorithms, AreChosenByWhatAFormNeeds) {
  const auto best = [](const AlgorithmChoice& choice) { return ranked_algorithms(choice)[0]; };
  const CommCaps adds{.rank_order = true};
  EXPECT_EQ(best({.traits = {.identity = true}}), "direct");
  EXPECT_EQ(best({.traits = {.summable = true, .merges = true}}), "direct");
  EXPECT_EQ(best({.traits = {.summable = true}, .caps = adds, .ranks = 8}), "direct");
  EXPECT_EQ(best({.traits = {.summable = true}, .ranks = 8}), "gather") << "in another order";
  EXPECT_EQ(best({.caps = adds, .payload = 1 << 24, .ranks = 8}), "gather") << "sums are encoded";
  const CodecTraits vote{.closed = true};
  EXPECT_EQ(best({.traits = vote, .payload = 1 << 20, .ranks = 8}), "shard");
  EXPECT_EQ(best({.traits = vote, .payload = 1 << 20, .ranks = 2}), "gather");
  EXPECT_EQ(best({.traits = vote, .payload = 100, .ranks = 8}), "gather");
  EXPECT_EQ(best({.traits = vote,
                  .payload = 10000,
                  .ranks = 8,
                  .link = {.latency_s = 1e-5, .bytes_per_s = 1e6}}),
            "shard");
  const CodecTraits open{.fixed_size = false, .closed = true};
  EXPECT_EQ(best({.traits = open, .payload = 1 << 20, .ranks = 8}), "gather");
}

// A majority of all votes is one vote: closed, so that owners may count.
TEST(Algorithms, AVoteIsTheSameByShard) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    at::Tensor out[2];
    for (const bool owners : {false, true}) {
      Recorder recorder(world.rank);
      Exchanger exchanger(
          world.comm, plan_of(1000, DType::f32, 3, "sign{scale=vote}", owners ? "shard" : "gather"),
          recorder);
      at::Tensor data = numbers(world.rank, 1000, at::kFloat);
      exchanger.start(0, data, {});
      exchanger.wait(0);
      out[owners ? 1 : 0] = data;
    }
    EXPECT_TRUE(at::equal(out[0], out[1]));
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
    TW_EXPECT_THROW(make("topk", "tree"), UnsupportedError, "do not add");
    TW_EXPECT_THROW(make("cast{f16}", "tree"), UnsupportedError, "rounded at every level");
    TW_EXPECT_THROW(make("powersgd", "hierarchical"), UnsupportedError, "a sum in the transport");
    Plan plan = plan_of(5, DType::f32, 2, "none", "hierarchical");
    plan.groups[0].topology = parse_spec("hierarchical{size=0}");
    TW_EXPECT_THROW(Exchanger(world.comm, plan, recorder), ConfigError, "size must be at least 1");
    TW_EXPECT_THROW(make("two_parts", "direct"), UnsupportedError, "do not add");
    auto w = parameter(at::ones({3}));
    TW_EXPECT_THROW(GradientSync({{"w", w}}, {}, world.comm, {.algorithm = "dirct"}), ConfigError,
                    "'direct'");
  });
}

}  // namespace thinwire::test
