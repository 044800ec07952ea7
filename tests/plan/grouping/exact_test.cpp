// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "tests/plan/models.h"

namespace thinwire::test {
namespace {

using Layers = std::vector<std::vector<int>>;

TEST(Exact, WorkedExamples) {
  const auto first = model(0, {3, 2, 1}, {1, 1, 2}, 3, 1);
  EXPECT_DOUBLE_EQ(first.step_s("wfbp"), 14);
  EXPECT_DOUBLE_EQ(first.step_s("single"), 13);
  EXPECT_DOUBLE_EQ(first.step_s("mg_wfbp"), 13);
  EXPECT_DOUBLE_EQ(first.step_s("exact"), 11);
  EXPECT_EQ(layers_of(first.group("exact")), (Layers{{3}, {2, 1}}));
  const auto second = model(2, {2, 2, 2, 2}, {4, 1, 1, 1}, 3, 1);
  EXPECT_DOUBLE_EQ(second.step_s("wfbp"), 23);
  EXPECT_DOUBLE_EQ(second.step_s("single"), 20);
  EXPECT_DOUBLE_EQ(second.step_s("mg_wfbp"), 20);
  EXPECT_DOUBLE_EQ(second.step_s("exact"), 19);
  EXPECT_EQ(layers_of(second.group("exact")), (Layers{{4}, {3, 2, 1}}));
}

TEST(Exact, EqualsBruteForceUpToTwelveLayers) {
  Rng rng({.seed = 4});
  int beaten = 0;
  for (int i = 0; i < 400; ++i) {
    const auto m = random_model(rng, 12);
    ASSERT_NEAR(m.step_s("exact"), brute_force_s(m), 1e-9) << "instance " << i;
    beaten += m.step_s("exact") < m.step_s("mg_wfbp") - 1e-9 ? 1 : 0;
  }
  EXPECT_GT(beaten, 20) << "the instances must tell the greedy plan from the optimum";
}

TEST(Exact, TwelveLayersByBruteForce) {
  Rng rng({.seed = 5});
  for (int i = 0; i < 20; ++i) {
    auto m = random_model(rng, 1);
    while (m.profile.params.size() < 12) m = random_model(rng, 12);
    ASSERT_NEAR(m.step_s("exact"), brute_force_s(m), 1e-9) << "instance " << i;
  }
}

TEST(Exact, NeverWorseAndNeverBelowTheBound) {
  Rng rng({.seed = 6});
  for (int i = 0; i < 10'000; ++i) {
    const auto m = random_model(rng, 10);
    const double exact = m.step_s("exact");
    for (const auto* other : {"mg_wfbp", "wfbp", "single"})
      ASSERT_LE(exact, m.step_s(other) + 1e-9) << other << ", instance " << i;
    // The brief's check: compute alone, or the first gradient and then one message of everything.
    const auto ready = ready_times(m.profile);
    const Link link = m.cluster.links.at("all_reduce")[0];
    double bytes = 0;
    for (const auto& tensor : m.profile.params) bytes += static_cast<double>(dense_bytes(tensor));
    const double bound =
        std::max(ready.front(), ready.back() + link.latency_s + bytes / link.bytes_per_s);
    ASSERT_GE(exact, bound - 1e-9) << "instance " << i;
  }
}

TEST(Exact, Limits) {
  Rng rng({.seed = 7});
  for (int i = 0; i < 300; ++i) {
    auto m = random_model(rng, 12);
    m.cluster.links["all_reduce"][0].latency_s = 0;
    EXPECT_NEAR(m.step_s("exact"), m.step_s("wfbp"), 1e-9);
    m.cluster.links["all_reduce"][0].latency_s = 1e6;
    EXPECT_EQ(m.group("exact").size(), 1u);
    m.cluster.ranks_per_level = {1};
    EXPECT_NEAR(m.step_s("exact"), ready_times(m.profile).front(), 1e-9);
  }
}

// An affine payload asked bucket by bucket gives the same plan as running sums.
TEST(Exact, GeneralPayloadsEqualAffineOnes) {
  Rng rng({.seed = 8});
  for (int i = 0; i < 300; ++i) {
    const auto m = random_model(rng, 12);
    auto affine = m.input(), general = m.input();
    affine.fixed_bytes = 3;
    affine.bytes_per_byte = 2;
    general.payload = [](const Bucket& bucket) {
      Bytes out = 3;
      for (const auto& slice : bucket.slices) out += 2 * (slice.end - slice.begin);
      return out;
    };
    const Spec spec = parse_spec("exact");
    EXPECT_EQ(make_grouping(spec, affine), make_grouping(spec, general));
  }
}

// A payload no running sum knows: half of each bucket above 10 bytes. Brute force asks it too.
TEST(Exact, GeneralPayloadsAreOptimal) {
  Rng rng({.seed = 9});
  for (int i = 0; i < 100; ++i) {
    const auto m = random_model(rng, 8);
    auto input = m.input();
    input.payload = [](const Bucket& bucket) {
      Bytes dense = 0;
      for (const auto& slice : bucket.slices) dense += slice.end - slice.begin;
      return dense > 10 ? dense / 2 : dense;
    };
    const int layers = static_cast<int>(m.profile.params.size());
    double best = 1e300;
    for (unsigned cuts = 0; cuts < 1u << (layers - 1); ++cuts) {
      Grouping grouping(1);
      for (int at = 0; at < layers; ++at) {
        const int tensor = layers - 1 - at;
        const auto& desc = m.profile.params[static_cast<std::size_t>(tensor)];
        grouping.back().slices.push_back({tensor, 0, elements(desc)});
        if (at + 1 < layers && (cuts >> at & 1) != 0) grouping.emplace_back();
      }
      best = std::min(best, predict_step_s(grouping, input));
    }
    EXPECT_NEAR(predict_step_s(make_grouping(parse_spec("exact"), input), input), best, 1e-9);
  }
}

TEST(Exact, SeveralDtypesNeverWorse) {
  Rng rng({.seed = 10});
  for (int i = 0; i < 2000; ++i) {
    auto m = random_model(rng, 12);
    for (auto& tensor : m.profile.params)
      tensor.dtype = std::array{DType::u8, DType::f16, DType::f32}[rng.below(3)];
    for (const auto* other : {"mg_wfbp", "wfbp", "single"})
      ASSERT_LE(m.step_s("exact"), m.step_s(other) + 1e-9) << other << ", instance " << i;
  }
}

TEST(Exact, AThousandLayersInUnderFiveMilliseconds) {
  Rng rng({.seed = 11});
  std::vector<double> t_b;
  std::vector<int> p;
  for (int i = 0; i < 1000; ++i) {
    t_b.push_back(1e-4 * rng.uniform());
    p.push_back(1 + static_cast<int>(rng.below(1 << 20)));
  }
  const auto m = model(0.02, t_b, p, 5e-4, 1e-9);
  double best = 1e300;  // the best of ten: the machine may be busy with other things
  for (int i = 0; i < 10; ++i) {
    const auto before = Clock::now();
    ASSERT_FALSE(m.group("exact").empty());
    best = std::min(best, std::chrono::duration<double>(Clock::now() - before).count());
  }
  RecordProperty("best_ms", std::to_string(best * 1e3));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kLimit = 0.25;  // instrumented code is some ten times slower
#else
  constexpr double kLimit = 5e-3;
#endif
  EXPECT_LT(best, kLimit);
}

}  // namespace
}  // namespace thinwire::test
