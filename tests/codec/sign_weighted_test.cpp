// SPDX-License-Identifier: Apache-2.0
#include "tests/codec/agreed.h"
#include "thinwire/core/rng.h"

namespace thinwire {

using test::one_tensor;

namespace {

constexpr std::int64_t kValues = 4000;

/// Votes of ranks that are each wrong about a true sign of +1 with their probability.
at::Tensor votes_of(double wrong, Rank rank, std::int64_t step) {
  at::Tensor x = at::empty({kValues});
  Rng rng({.seed = 7, .step = step, .rank = rank});
  for (std::int64_t i = 0; i < kValues; ++i)
    x.data_ptr<float>()[i] = rng.uniform() < wrong ? -1.0f : 1.0f;
  return x;
}

/// The share of wrong outcomes in the last `counted` of `steps` votes.
double error_of(Codec& codec, const std::vector<double>& wrong, int steps, int counted) {
  double errors = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<Payload> payloads;
    for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
      const at::Tensor x = votes_of(wrong[rank], static_cast<Rank>(rank), step);
      payloads.push_back({.parts = {codec.encode(x, {.step = step}).parts[0].clone()}});
    }
    at::Tensor out;
    codec.combine(payloads, static_cast<int>(wrong.size()), out);
    EXPECT_TRUE(out.abs().eq(1).all().item<bool>());
    if (step >= steps - counted) errors += out.lt(0).to(at::kDouble).mean().item<double>();
  }
  return errors / counted;
}

std::vector<double> ranks_of(int honest, double wrong, int liars, double lie) {
  std::vector<double> out(static_cast<std::size_t>(honest), wrong);
  out.insert(out.end(), static_cast<std::size_t>(liars), lie);
  return out;
}

}  // namespace

TEST(SignWeighted, KF29_OneBitAValue) {
  EXPECT_EQ(one_tensor("sign_weighted", 1025)->max_bytes(), 129);
}

TEST(SignWeighted, TheFirstVoteIsAMajorityAndZerosArePositive) {
  const auto codec = one_tensor("sign_weighted", 4);
  std::vector<Payload> payloads;
  for (const at::Tensor& x :
       {at::tensor({1.0f, -1.0f, 0.0f, 1.0f}), at::tensor({1.0f, -1.0f, -0.0f, -1.0f})})
    payloads.push_back({.parts = {codec->encode(x, {}).parts[0].clone()}});
  at::Tensor out;
  codec->combine(payloads, 2, out);
  EXPECT_TRUE(at::equal(out, at::tensor({1.0f, -1.0f, 1.0f, 1.0f}))) << "sign(0) = +1, ties too";
}

// With the weights of the true probabilities the good one would be followed, 0.1 wrong. But what
// is known of it is how often it agreed with what came out, and weak voters agree with their own
// majority: weights stay too even to change it.
TEST(SignWeighted, AMajorityOfWeakVotersKeepsItself) {
  const std::vector<double> wrong{0.1, 0.4, 0.4, 0.4, 0.4};
  EXPECT_NEAR(error_of(*one_tensor("sign{scale=vote}", kValues), wrong, 10, 10), 0.21376, 0.01);
  EXPECT_NEAR(error_of(*one_tensor("sign_weighted", kValues), wrong, 60, 20), 0.21376, 0.01);
}

// Seven of fifteen invert their signs: their votes count against what they say, and nothing is
// lost. Leaving them out would give 0.0333.
TEST(SignWeighted, LiarsBecomeUseful) {
  const auto liars = ranks_of(8, 0.2, 7, 0.8), none = ranks_of(15, 0.2, 0, 0);
  EXPECT_NEAR(error_of(*one_tensor("sign{scale=vote}", kValues), liars, 5, 5), 0.4195, 0.015);
  EXPECT_NEAR(error_of(*one_tensor("sign_weighted", kValues), liars, 60, 20), 0.00424, 0.0012);
  EXPECT_NEAR(error_of(*one_tensor("sign_weighted", kValues), none, 60, 20), 0.00424, 0.0012);
}

TEST(SignWeighted, ThoseWhoFlipAtRandomAreIgnored) {
  const auto some = ranks_of(9, 0.2, 6, 0.5), honest = ranks_of(9, 0.2, 0, 0);
  const double without = error_of(*one_tensor("sign_weighted", kValues), honest, 60, 20);
  EXPECT_NEAR(error_of(*one_tensor("sign_weighted", kValues), some, 60, 20), without, 0.004);
}

// The weights rest on what came out, so liars in the majority turn it round: a loss that rises is
// how it shows.
TEST(SignWeighted, AMajorityOfLiarsWins) {
  const auto codec = one_tensor("sign_weighted", kValues);
  EXPECT_GT(error_of(*codec, ranks_of(6, 0.2, 9, 0.8), 40, 10), 0.95);
}

TEST(SignWeighted, FromTheStartOnEachValueHasItsOwnWeights) {
  // A rank that is right about the first half and lies about the second.
  for (const std::string rule : {"fd", "fv"}) {
    const auto codec = one_tensor("sign_weighted{start=30,rule=" + rule + "}", kValues);
    double errors = 0;
    for (int step = 0; step < 120; ++step) {
      std::vector<Payload> payloads;
      for (int rank = 0; rank < 5; ++rank) {
        at::Tensor x = votes_of(rank < 2 ? 0.0 : 0.35, rank, step);
        if (rank == 0) x.narrow(0, kValues / 2, kValues / 2).mul_(-1);
        if (rank == 1) x.narrow(0, 0, kValues / 2).mul_(-1);
        payloads.push_back({.parts = {codec->encode(x, {}).parts[0].clone()}});
      }
      at::Tensor out;
      codec->combine(payloads, 5, out);
      if (step >= 100) errors += out.lt(0).to(at::kDouble).mean().item<double>() / 20;
    }
    EXPECT_LT(errors, 0.02) << rule << ": with one weight a rank it would be a fifth or more";
  }
}

TEST(SignWeighted, ItsCountersAreState) {
  struct Saved : StateVisitor {
    std::map<std::string, at::Tensor> all;
    bool load = false;
    void tensor(const std::string& name, at::Tensor& value) override {
      if (load)
        value = all.at(name).clone();
      else
        all[name] = value.clone();
    }
    void integer(const std::string&, std::int64_t&) override {}
    void elements(const std::string&, at::Tensor&) override {}
  } saved;
  const auto first = one_tensor("sign_weighted", kValues),
             second = one_tensor("sign_weighted", kValues);
  const auto wrong = ranks_of(8, 0.2, 7, 0.8);
  error_of(*first, wrong, 20, 1);
  first->visit_state(saved);
  saved.load = true;
  second->visit_state(saved);
  EXPECT_EQ(error_of(*first, wrong, 3, 3), error_of(*second, wrong, 3, 3));
  EXPECT_LT(error_of(*second, wrong, 1, 1), 0.02) << "without them it would be 0.42";
}

TEST(SignWeighted, ReadsItsOptions) {
  TW_EXPECT_THROW(one_tensor("sign_weighted{rule=mv}", 1), ConfigError, "fd or fv");
  TW_EXPECT_THROW(one_tensor("sign_weighted{start=0}", 1), ConfigError, "at least 1");
}

}  // namespace thinwire
