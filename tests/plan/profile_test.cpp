// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/plan/models.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

Profile small() {
  return {.params = {{"a.weight", DType::f32, {3, 4}},
                     {"a.bias", DType::f16, {3}},
                     {"s", DType::c128, {}}},
          .forward_s = {0.5, 0.25, 0},
          .backward_s = {1, 2, 0.125},
          .codecs = {{"topk{ratio=0.01}", {1e9, 2e9}}}};
}

TEST(Profile, SizesAndReadyTimes) {
  const Profile profile = small();
  EXPECT_EQ(elements(profile.params[0]), 12);
  EXPECT_EQ(elements(profile.params[2]), 1);
  EXPECT_EQ(dense_bytes(profile.params[1]), 6);
  EXPECT_EQ(dense_bytes(profile.params[2]), 16);
  EXPECT_EQ(elements({"e", DType::f32, {0, 5}}), 0);
  EXPECT_EQ(elements({"e", DType::f32, {-1}}), -1);
  EXPECT_EQ(elements({"e", DType::f32, {1 << 30, 1 << 30}}), -1);
  EXPECT_EQ(elements({"e", DType::f32, {1 << 30, 1 << 30, 0}}), -1);
  EXPECT_EQ(ready_times(profile), (std::vector<Seconds>{3.875, 2.875, 0.875}));
}

TEST(Profile, SlowRanksSetThePace) {
  auto m = test::model(1, {1, 1}, {1, 1}, 1, 1);
  EXPECT_DOUBLE_EQ(m.step_s("single"), 3 + 1 + 2);
  m.cluster.speed = {1, 0.5};
  EXPECT_DOUBLE_EQ(m.step_s("single"), 6 + 1 + 2);
}

TEST(Profile, JsonRoundTrip) {
  const Profile profile = small();
  EXPECT_EQ(profile_from_json(to_json(profile)), profile);
  EXPECT_EQ(to_json(profile_from_json(to_json(profile))), to_json(profile));
  Profile other = profile;
  other.codecs["topk{ratio=0.01}"].decode_bytes_per_s = 1;
  EXPECT_FALSE(other == profile);
}

TEST(Profile, Refusals) {
  const auto refused = [](auto change, const std::string& words) {
    Profile profile = small();
    change(profile);
    TW_EXPECT_THROW(validate(profile), ConfigError, words);
  };
  refused([](auto& p) { p = {}; }, "the profile has no tensors");
  refused([](auto& p) { p.backward_s.pop_back(); },
          "3 tensors need as many forward_s and backward_s, got 3 and 2");
  refused([](auto& p) { p.forward_s[1] = -1; },
          "tensor 1 ('a.bias'): times must be finite and at least 0, got -1");
  refused([](auto& p) { p.backward_s[0] = NAN; }, "got nan");
  refused([](auto& p) { p.params[0].shape = {-3}; },
          "tensor 0 ('a.weight'): the shape [-3] is negative");
  refused([](auto& p) { p.codecs["qsgd"] = {INFINITY, 1}; }, "codec 'qsgd': a speed must be");
}

// KF-53 (ii) as far as reading goes: no tensors is an error that names the file.
TEST(KnownFailures, KF53_ProfileWithoutTensorsNamesTheFile) {
  TW_EXPECT_THROW(profile_from_json(R"({"tensors": []})", "empty.json"), ConfigError,
                  "empty.json: the profile has no tensors");
}

TEST(Profile, FilesAreRefusedByPlace) {
  TW_EXPECT_THROW(profile_from_json(R"({"tensors": [{"name": "a"}]})", "p.json"), DataError,
                  "p.json: tensor 0: 'shape' is missing");
  TW_EXPECT_THROW(
      profile_from_json(R"({"tensors": [{"name": "a", "shape": [1], "dtype": "f31"}]})", "p.json"),
      DataError, "p.json: tensor 0: unknown dtype 'f31'");
  TW_EXPECT_THROW(profile_from_json(R"({"tensor": []})", "p.json"), DataError,
                  "p.json: unknown key 'tensor'; did you mean 'tensors'?");
}

TEST(MakeGrouping, MisspeltNamesTheNearest) {
  const auto m = test::model(0, {1}, {1}, 1, 1);
  TW_EXPECT_THROW(
      m.group("mgwfbp"), ConfigError,
      "unknown grouping 'mgwfbp'; did you mean 'mg_wfbp'? valid: covap, ddp, even_bytes, exact, "
      "mg_wfbp, single, size_cap, wfbp");
  TW_EXPECT_THROW(m.group("exact{bytes=1}"), ConfigError, "exact: unknown parameter 'bytes'");
}

// Every registered grouping, named or not in this file, on lists with empty, scalar and mixed
// tensors.
TEST(MakeGrouping, EveryPlannerPlacesEveryElementOnceAndTwiceTheSame) {
  Rng rng({.seed = 21});
  for (int i = 0; i < 200; ++i) {
    auto m = test::random_model(rng, 15);
    for (auto& tensor : m.profile.params) {
      if (rng.below(5) == 0) tensor.shape = {0};
      if (rng.below(5) == 0) tensor.shape = {};
      if (rng.below(3) == 0) tensor.dtype = DType::bf16;
    }
    if (rng.below(4) == 0) m.cluster.ranks_per_level = {1};
    for (const auto& name : groupings().names()) {
      const Grouping grouping = m.group(name);
      EXPECT_EQ(grouping_fault(grouping, m.profile.params), "") << name;
      EXPECT_EQ(m.group(name), grouping) << name;
      for (std::size_t b = 1; b < grouping.size(); ++b)  // bucket 0 is ready, and started, first
        EXPECT_GT(grouping[b - 1].slices.back().tensor, grouping[b].slices.back().tensor) << name;
    }
  }
}

TEST(GroupingFault, SaysWhatIsWrong) {
  const std::vector<TensorDesc> tensors{{"a", DType::f32, {4}}, {"b", DType::f16, {2}}};
  const auto fault = [&](const Grouping& grouping) { return grouping_fault(grouping, tensors); };
  EXPECT_EQ(fault({{{{1, 0, 2}}}, {{{0, 2, 4}, {0, 0, 2}}}}), "");
  EXPECT_EQ(fault({{{{0, 0, 4}}}}), "element 0 of tensor 1 ('b') stands in no bucket");
  EXPECT_EQ(fault({{{{0, 0, 3}}}, {{{1, 0, 2}}}}),
            "element 3 of tensor 0 ('a') stands in no bucket");
  EXPECT_EQ(fault({{{{0, 0, 3}}}, {{{0, 2, 4}}}, {{{1, 0, 2}}}}),
            "element 2 of tensor 0 ('a') stands in two buckets");
  EXPECT_EQ(fault({{{{0, 0, 4}, {1, 0, 2}}}}), "bucket 0 mixes f32 ('a') and f16 ('b')");
  EXPECT_EQ(fault({{{{2, 0, 4}}}}), "bucket 0: tensor must be in [0, 2), got 2");
  EXPECT_EQ(fault({{{{0, 0, 5}}}}), "bucket 0: [0, 5) is no part of tensor 0 ('a') of 4 elements");
  EXPECT_EQ(fault({Bucket{}}), "bucket 0 has no slices");
}

}  // namespace
}  // namespace thinwire
