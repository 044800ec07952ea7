// SPDX-License-Identifier: Apache-2.0
// Abrahamyan et al. 2021, both forms: stages, bytes, identities.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/codec/memory/workers.h"
#include "tests/support/expect_throw.h"
#include "thinwire/codec/autoencoder_net.h"
#include "thinwire/codec/kernels/simd.h"

namespace thinwire::test {
namespace {

std::unique_ptr<Codec> autoencoder(const std::string& options, std::int64_t values = 100) {
  const std::vector<TensorDesc> descs{{"w", DType::f32, {values}}};
  return codecs().find("autoencoder").make(parse_spec("autoencoder{" + options + "}"), descs);
}

/// Ranks with such a codec under ef, in one process.
struct Together {
  std::vector<std::unique_ptr<Codec>> codec;
  std::vector<at::Tensor> residual;
  std::int64_t steps = 0;
  bool copies = true;       ///< of payloads go on, as where they come from elsewhere
  Bytes bytes = 0;          ///< of a payload of the last step
  std::vector<Tensor> own;  ///< what each rank's payload decodes to

  Together(int ranks, const std::string& options, std::int64_t values = 100) {
    for (int r = 0; r < ranks; ++r) {
      codec.push_back(autoencoder(options, values));
      residual.push_back(at::zeros({values}));
    }
  }
  at::Tensor step(const std::vector<at::Tensor>& produced) {
    const auto n = codec.size();
    std::vector<Slot> slots;
    Tensor agreed;
    for (std::size_t r = 0; r < n; ++r) {
      slots.push_back({.step = steps, .rank = static_cast<Rank>(r), .ranks = static_cast<int>(n)});
      residual[r] = residual[r] + produced[r];
      const auto proposal = codec[r]->propose(residual[r], slots[r]);
      if (proposal) agreed = agreed.defined() ? agreed + proposal->value : proposal->value;
    }
    Tensor sum;
    own.assign(codec.size(), {});
    for (std::size_t r = 0; r < n; ++r) {
      if (agreed.defined()) slots[r].agreed.push_back(agreed);
      EXPECT_FALSE(agreed.defined() && codec[r]->propose(residual[r], slots[r]).has_value());
      Payload payload = codec[r]->encode(residual[r], slots[r]);
      if (copies) payload.parts[0] = payload.parts[0].clone();
      bytes = payload.bytes();
      codec[r]->decode(payload, own[r], Write::set);
      codec[r]->residual(residual[r], payload, residual[r]);
      sum = sum.defined() ? sum + payload.parts[0] : payload.parts[0];
    }
    // As transports do: a mean, but for integers, which have none.
    const bool bits = at::isIntegralType(sum.scalar_type(), false);
    at::Tensor out;
    for (std::size_t r = 0; r < n; ++r) {
      Payload merged{{bits ? sum.clone() : sum / static_cast<double>(n)}};
      codec[r]->commit(merged);
      at::Tensor value;
      codec[r]->decode(merged, value, Write::set);
      if (bits) codec[r]->conclude(value, static_cast<int>(n));
      if (out.defined()) {
        EXPECT_TRUE(at::allclose(out, value, 0, 0, true)) << "rank " << r;
      }
      out = value;
    }
    ++steps;
    return out;
  }
};

/// A pattern that all ranks share, in other amounts, and a little of their own.
at::Tensor correlated(int rank, std::int64_t step) {
  const at::Tensor i = at::arange(100, at::kFloat);
  return at::sin(i * 0.12) * (2 + std::sin(0.3 * static_cast<double>(step))) +
         at::cos(i * (3.3 + rank)) * 0.05;
}

std::map<std::string, at::Tensor> state_of(Codec& codec) {
  StateOf visitor;
  codec.visit_state(visitor);
  return visitor.found;
}

}  // namespace

// k + 4 bytes of a code: 4 numbers for 16 values. In the server's form 1 + 8 numbers of the leader,
// and of each rank what it loses, and the positions and values of its innovations.
TEST(Autoencoder, SendsDenseThenValuesThenAQuarterOfThem) {
  const auto sizes_of = [](int n, const std::string& options) {
    Together ranks(n, options);
    std::vector<Bytes> sizes;
    for (int t = 0; t < 400 && sizes.size() < 3; ++t) {
      std::vector<at::Tensor> g;
      for (int r = 0; r < n; ++r) g.push_back(correlated(r, t));
      ranks.step(g);
      if (sizes.empty() || sizes.back() != ranks.bytes) sizes.push_back(ranks.bytes);
    }
    return sizes;
  };
  const std::string options = "count=32,dense=2,train=40,width=8,rate=0.01";
  using Sizes = std::vector<Bytes>;
  EXPECT_EQ(sizes_of(2, options), (Sizes{400, 4 * 32, 32 + 4}));
  EXPECT_EQ(sizes_of(2, options + ",form=server"),
            (Sizes{400, 2 * 4 * 32, 4 * (1 + 8 + 2 * (1 + 2))}));
  EXPECT_EQ(sizes_of(3, options + ",form=server,innovation=0.1"),
            (Sizes{400, 3 * 4 * 32, 4 * (1 + 8 + 3 * (1 + 2 * 3))}));
}

// With the values themselves in place of a code: error feedback with the positions of one rank.
TEST(Autoencoder, BeforeItIsTrainedItIsTopKAtCommonPositions) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=5,dense=0,train=1000000,width=2,form=" + form);
    std::vector<at::Tensor> left(2, at::zeros({100}));
    for (int t = 0; t < 30; ++t) {
      const std::vector<at::Tensor> g{correlated(0, t), correlated(1, 3 * t)};
      at::Tensor mean = at::zeros({100});
      for (std::size_t r = 0; r < 2; ++r) left[r] = left[r] + g[r];
      const at::Tensor chosen = std::get<1>(left[static_cast<std::size_t>(t % 2)].abs().topk(5));
      for (std::size_t r = 0; r < 2; ++r) {
        const at::Tensor values = left[r].index_select(0, chosen);
        mean.index_add_(0, chosen, values / 2);
        left[r].index_fill_(0, chosen, 0);
      }
      const at::Tensor out = ranks.step(g);
      EXPECT_LT((out - mean).abs().max().item<float>(), 1e-5F) << t;
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_TRUE(at::equal(ranks.residual[r], left[r])) << t;
      }
    }
  }
}

TEST(Autoencoder, WhatStaysBehindIsTheSameForAPayloadAndItsCopy) {
  for (const std::string form : {"ring", "server"}) {
    const std::string options = "count=32,dense=1,train=30,width=8,rate=0.01,form=" + form;
    Together copied(2, options), itself(2, options);
    itself.copies = false;
    std::set<Bytes> sizes;
    for (int t = 0; t < 200; ++t) {
      const std::vector<at::Tensor> g{correlated(0, t), correlated(1, t)};
      EXPECT_TRUE(at::equal(copied.step(g), itself.step(g))) << form << t;
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_TRUE(at::equal(copied.residual[r], itself.residual[r])) << form << t;
      }
      sizes.insert(copied.bytes);
    }
    EXPECT_EQ(sizes.size(), 3u) << form;
  }
}

// Values that rise, whatever their places: positions are sorted by what stands there.
TEST(Autoencoder, PositionsAreInOrderOfTheLeadersValues) {
  const auto codec = autoencoder("count=4,dense=0,width=2");
  at::Tensor x = at::zeros({100});
  x[7] = 3;
  x[20] = -5;
  x[21] = 9;
  x[90] = -5;
  const Slot leader{.step = 3, .rank = 1, .ranks = 2}, other{.step = 3, .rank = 0, .ranks = 2};
  const at::Tensor said = codec->propose(x, leader)->value;
  EXPECT_TRUE(at::equal(said.narrow(0, 0, 4), at::tensor({20, 90, 7, 21}, at::kInt)));
  EXPECT_FLOAT_EQ(said.narrow(0, 4, 1).view(at::kFloat).item<float>(), std::sqrt(140.F / 4));
  EXPECT_TRUE(codec->propose(x, other)->value.eq(0).all().item<bool>());
}

TEST(Autoencoder, WhatIsSentAndWhatIsLeftIsWhatWasThere) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=32,dense=2,train=30,width=8,rate=0.01,form=" + form);
    std::set<Bytes> sizes;
    for (int t = 0; t < 200; ++t) {
      const std::vector<at::Tensor> g{correlated(0, t), correlated(1, t)}, before = ranks.residual;
      ranks.step(g);
      sizes.insert(ranks.bytes);
      for (std::size_t r = 0; r < 2; ++r) {
        const at::Tensor there = before[r] + g[r];
        EXPECT_LT((ranks.own[r] + ranks.residual[r] - there).abs().max().item<float>(),
                  1e-5F * there.abs().max().item<float>())
            << form << t;
      }
    }
    EXPECT_EQ(sizes.size(), 3u) << form;
  }
}

TEST(Autoencoder, LearnsAndThenLosesLessThanHalf) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=48,dense=0,train=60,width=8,rate=0.01,form=" + form);
    std::vector<double> errors;
    double lost = 0;
    int compressed = 0;
    for (int t = 0; t < 300; ++t) {
      const auto before = ranks.residual;
      ranks.step({correlated(0, t), correlated(1, t)});
      if (ranks.bytes >= 4 * 48) {
        errors.push_back(state_of(*ranks.codec[0])["error/w"].item<double>());
        continue;
      }
      ++compressed;
      const at::Tensor there = before[0] + correlated(0, t);
      const at::Tensor chosen = ranks.own[0].ne(0);
      lost += ((ranks.own[0] - there) * chosen).square().sum().item<double>() /
              (there * chosen).square().sum().item<double>();
    }
    ASSERT_GE(errors.size(), 60u);
    ASSERT_GE(compressed, 100) << form;
    EXPECT_LT(lost / compressed, 0.5) << form;
    EXPECT_LT(*std::min_element(errors.begin(), errors.end()), 0.5);
    EXPECT_LT(errors[59], errors[5]);
    for (const auto& left : ranks.residual) EXPECT_LT(left.abs().max().item<double>(), 100);
  }
}

// With one weight that all ranks start from and the same data, decoders of several ranks are one.
TEST(Autoencoder, RanksHaveTheSameWeightsAndEqualDataIsDecodedAsBySomeRank) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(3, "count=32,dense=1,train=30,width=8,rate=0.01,form=" + form);
    for (int t = 0; t < 200; ++t) {
      const at::Tensor g = correlated(0, t), out = ranks.step({g, g, g});
      EXPECT_LT((out - ranks.own[1]).abs().max().item<float>(),
                1e-5F * (1 + out.abs().max().item<float>()))
          << form << t;
    }
    EXPECT_LT(ranks.bytes, 3 * 128) << "values are compressed";
    const auto first = state_of(*ranks.codec[0]), last = state_of(*ranks.codec[2]);
    EXPECT_GT(first.size(), 40u);
    for (const auto& [name, value] : first) EXPECT_TRUE(at::equal(value, last.at(name))) << name;
  }
}

TEST(Autoencoder, WeightsOfRanksWithDataOfTheirOwnAreTheSameBits) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(3, "count=32,dense=1,train=40,width=4,rate=0.01,form=" + form);
    for (int t = 0; t < 60; ++t)
      ranks.step({correlated(0, t), correlated(1, t), correlated(2, 2 * t)});
    const auto first = state_of(*ranks.codec[0]);
    for (const std::size_t other : {1u, 2u})
      for (const auto& [name, value] : state_of(*ranks.codec[other])) {
        if (name == "lost/w") continue;  // its own
        EXPECT_TRUE(at::equal(value, first.at(name))) << form << name;
      }
  }
}

TEST(Autoencoder, GoesOnAfterACheckpoint) {
  struct Load : StateVisitor {
    std::map<std::string, at::Tensor> from;
    void tensor(const std::string& name, at::Tensor& value) override {
      value = from.at(name).clone();
    }
    void integer(const std::string& name, std::int64_t& value) override {
      value = from.at(name).item<std::int64_t>();
    }
    void elements(const std::string&, at::Tensor&) override {}
  };
  for (const std::string form : {"ring", "server"})
    for (const int at : {1, 10, 120}) {
      const std::string options = "count=32,dense=1,train=20,width=4,rate=0.02,form=" + form;
      const auto produced = [](int t) {
        return std::vector<at::Tensor>{correlated(0, t), correlated(1, t)};
      };
      Together first(2, options), second(2, options);
      for (int t = 0; t < at; ++t) first.step(produced(t));
      for (std::size_t r = 0; r < 2; ++r) {
        Load load;
        load.from = state_of(*first.codec[r]);
        second.codec[r]->visit_state(load);
        second.residual[r] = first.residual[r].clone();
      }
      second.steps = at;
      for (int t = at; t < at + 40; ++t)
        EXPECT_TRUE(at::equal(first.step(produced(t)), second.step(produced(t))))
            << form << at << " " << t;
    }
}

TEST(Autoencoder, TrainsAgainWhereARankHasNoDecoderYet) {
  const std::string options = "count=32,dense=0,train=30,width=8,rate=0.01,form=server";
  Together two(2, options);
  for (int t = 0; t < 400 && (t == 0 || two.bytes == 2 * 128); ++t)
    two.step({correlated(0, t), correlated(1, t)});
  ASSERT_LT(two.bytes, 2 * 128);
  Together three(3, options);
  three.codec[0] = std::move(two.codec[0]);
  three.codec[1] = std::move(two.codec[1]);
  Slot slot{.step = 0, .rank = 0, .ranks = 3};
  slot.agreed.push_back(three.codec[0]->propose(correlated(0, 0), slot)->value);
  EXPECT_EQ(three.codec[0]->encode(correlated(0, 0), slot).bytes(), 3 * 128);
}

// Gradients that it was not trained on: no more is kept back than before.
TEST(Autoencoder, GoesBackToTrainingWhereItLosesTooMuch) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=32,dense=0,train=30,width=8,rate=0.01,form=" + form);
    const Bytes compressed = form == "ring" ? 36 : 60;
    bool was_compressed = false, trains_again = false;
    double most = 0;
    for (int t = 0; t < 500; ++t) {
      const auto generator =
          at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(t));
      const at::Tensor noise =
          at::randn({2, 100}, generator, at::TensorOptions(at::kFloat)) * (t < 150 ? 0.02 : 3);
      ranks.step({correlated(0, t) + noise[0], correlated(1, t) + noise[1]});
      was_compressed = was_compressed || ranks.bytes == compressed;
      trains_again = trains_again || (was_compressed && ranks.bytes != compressed);
      for (const auto& left : ranks.residual)
        most = std::max(most, left.abs().max().item<double>());
    }
    EXPECT_TRUE(was_compressed) << form;
    EXPECT_TRUE(trains_again) << form;
    EXPECT_LT(most, 500) << form;
  }
}

// One step of warm-up, then gradients of another kind: what it cannot say is kept, not blown up.
TEST(KnownFailures, KF24_AWarmUpThatIsTooShort) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=4,dense=1,train=1,width=2,form=" + form, 4);
    at::Tensor w = at::zeros({4});
    for (int t = 0; t < 10; ++t) {
      at::Tensor g = at::ones({4});
      if (t == 0) g[3] = 0;
      w -= ranks.step({g, g});
    }
    EXPECT_TRUE(w.isfinite().all().item<bool>()) << form;
    const at::Tensor all = at::tensor({10.F, 10.F, 10.F, 9.F});
    for (const auto& left : ranks.residual) {
      EXPECT_LT((left - w - all).abs().max().item<float>(), 1e-4F) << form;
      EXPECT_LT(left.abs().max().item<float>(), 20) << form;
    }
  }
}

TEST(AutoencoderNet, EqualRowsHaveOneCodeAndOneDecoder) {
  AutoencoderNet net(4, true, 7);
  at::Tensor row = at::sin(at::arange(64, at::kFloat) * 0.1);
  const at::Tensor rows = row.repeat({3, 1}), innovations = at::zeros({3, 64});
  double first = 0, last = 0;
  for (int t = 0; t < 100; ++t) {
    const auto loss = net.train(rows, innovations, 1, 0.01);
    EXPECT_EQ(loss.similarity, 0);
    (t == 0 ? first : last) = loss.error;
  }
  EXPECT_LT(last, 0.2 * first);
  const at::Tensor code = net.encode(row);
  ASSERT_EQ(code.numel(), 16) << "a quarter";
  EXPECT_TRUE(at::equal(net.decode(code, 0, {}), net.decode(code, 2, {})));
}

// What is in the loss: codes of unlike rows come together, and each decoder makes its own row.
TEST(AutoencoderNet, CodesComeTogetherAndDecodersPartWays) {
  AutoencoderNet net(8, true, 7);
  const at::Tensor i = at::arange(64, at::kFloat);
  const at::Tensor rows = at::stack({at::sin(i * 0.1), at::sin(i * 0.1 + 0.4)});
  AutoencoderNet::Loss first, last;
  for (int t = 0; t < 300; ++t) {
    last = net.train(rows, at::zeros({2, 64}), 0, 0.01);
    if (t == 0) first = last;
  }
  EXPECT_LT(last.error, 0.1);
  EXPECT_LT(last.error, first.error / 4);
  EXPECT_LT(last.similarity, 0.05);
  const at::Tensor code = net.encode(rows.select(0, 0));
  for (const std::int64_t k : {0, 1})
    EXPECT_LT((net.decode(code, k, {}) - rows.select(0, k)).square().mean().item<double>(), 0.1);
}

TEST(AutoencoderNet, HasTheSameBitsWithoutVectorInstructions) {
  const at::Tensor rows = at::sin(at::arange(192, at::kFloat) * 0.1).view({2, 96});
  const auto trained = [&](kernels::Simd simd) {
    const kernels::Simd before = kernels::simd();
    kernels::use_simd(simd);
    AutoencoderNet net(6, true, 3);
    for (int t = 0; t < 5; ++t) net.train(rows, rows * 0.5, t % 2, 0.01);
    const at::Tensor out = net.decode(net.encode(rows.select(0, 0)), 1, rows.select(0, 1));
    kernels::use_simd(before);
    return out;
  };
  EXPECT_TRUE(at::equal(trained(kernels::Simd::scalar), trained(kernels::widest_simd())));
}

/// Half the square error of what comes out against what went in.
double half_error(const ConvStack& stack, const std::vector<float>& x) {
  const auto out = stack.forward(x).back();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(out[i] - x[i], 2) / 2;
  return sum;
}

// Against differences of the loss, with every kind of layer that there is.
TEST(AutoencoderNet, GradientsAreThoseOfItsLoss) {
  const auto fresh = [] {
    return ConvStack({{.from = 2, .to = 3},
                      {.from = 3, .to = 5, .kernel = 1},
                      {.from = 5, .to = 2, .up = true, .linear = true}},
                     5);
  };
  std::vector<float> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.3F * static_cast<float>(i));
  ConvStack stack = fresh();
  const auto pass = stack.forward(x);
  ASSERT_EQ(pass.back().size(), x.size());
  std::vector<float> off = pass.back();
  for (std::size_t i = 0; i < x.size(); ++i) off[i] -= x[i];
  const auto to_input = stack.backward(pass, off);
  for (std::size_t i = 0; i < x.size(); ++i) {  // the loss has x in it as well, as what is wanted
    double loss[2];
    for (const int side : {0, 1}) {
      auto moved = x;
      moved[i] += side == 0 ? -1e-3F : 1e-3F;
      loss[side] = half_error(fresh(), moved);
    }
    EXPECT_NEAR(to_input[i] - off[i], (loss[1] - loss[0]) / 2e-3, 5e-2) << i;
  }
  for (std::size_t layer = 0; layer < 3; ++layer)
    for (const int which : {0, 1})
      for (std::int64_t e = 0;
           e < static_cast<std::int64_t>(stack.layers()[layer].grad[which].size()); ++e) {
        double loss[2];
        for (const int side : {0, 1}) {
          const ConvStack beside = fresh();
          const ConvLayer& one = beside.layers()[layer];
          (which == 0 ? one.weight : one.bias).view(-1)[e].add_(side == 0 ? -1e-3 : 1e-3);
          loss[side] = half_error(beside, x);
        }
        const double slope = (loss[1] - loss[0]) / 2e-3;
        EXPECT_NEAR(stack.layers()[layer].grad[which][static_cast<std::size_t>(e)], slope,
                    0.02 * std::abs(slope) + 0.05)
            << layer << " " << which << " " << e;
      }
}

TEST(Autoencoder, LearnsOnAfterAGradientThatIsNoNumber) {
  for (const std::string form : {"ring", "server"}) {
    Together ranks(2, "count=32,dense=0,train=30,width=8,rate=0.01,form=" + form);
    const Bytes compressed = form == "ring" ? 36 : 60;
    bool was_compressed = false;
    for (int t = 0; t < 300; ++t) {
      std::vector<at::Tensor> g{correlated(0, t), correlated(1, t)};
      if (t == 11) g[1][17] = NAN;
      ranks.step(g);
      if (t == 11) ranks.residual = {at::zeros({100}), at::zeros({100})};
      was_compressed = was_compressed || ranks.bytes == compressed;
    }
    EXPECT_TRUE(was_compressed) << form;
    for (const auto& left : ranks.residual) EXPECT_LT(left.abs().max().item<double>(), 100) << form;
  }
}

TEST(Autoencoder, RefusesPayloadsThatNobodyMakes) {
  for (const std::string form : {"ring", "server"}) {
    const std::string options = "count=32,dense=0,train=30,width=8,rate=0.01,form=" + form;
    const Bytes compressed = form == "ring" ? 36 : 60;
    Together ranks(2, options);
    for (int t = 0; t < 400 && ranks.bytes != compressed; ++t)
      ranks.step({correlated(0, t), correlated(1, t)});
    ASSERT_EQ(ranks.bytes, compressed) << form;
    Codec& codec = *ranks.codec[0];
    const Tensor x = correlated(0, 1);
    Slot slot{.step = ranks.steps, .rank = 0, .ranks = 2};
    const auto said = codec.propose(x, slot);
    const auto other = ranks.codec[1]->propose(x, {.step = ranks.steps, .rank = 1, .ranks = 2});
    slot.agreed.push_back(said->value + other->value);
    const Tensor good = codec.encode(x, slot).parts[0].clone();
    if (static_cast<Bytes>(good.nbytes()) != compressed) continue;  // trains again
    Tensor out;
    codec.decode({{good}}, out, Write::set);
    for (const Tensor& bad : {good.narrow(0, 1, good.numel() - 1).clone(), good.to(at::kDouble),
                              at::cat({good, good}), good.unsqueeze(0)})
      EXPECT_THROW(codec.decode({{bad}}, out, Write::set), DataError) << form;
    if (form == "ring") continue;
    for (const int place : {-5, 33, INT32_MAX}) {
      Tensor bad = good.clone();
      bad[1 + 8 + 1] = place;  // of rank 0's only innovation, from 1 on
      EXPECT_THROW(codec.decode({{bad}}, out, Write::set), DataError) << place;
    }
  }
}

TEST(Autoencoder, RefusesOptionsAndPositions) {
  TW_EXPECT_THROW(autoencoder("dense=-1"), ConfigError, "dense must be at least 0, got -1");
  TW_EXPECT_THROW(autoencoder("train=0"), ConfigError, "train must be at least 1 step, got 0");
  TW_EXPECT_THROW(autoencoder("width=1"), ConfigError, "width must be in [2, 1024], got 1");
  TW_EXPECT_THROW(autoencoder("rate=0"), ConfigError, "rate must be above 0, got 0");
  TW_EXPECT_THROW(autoencoder("form=tree"), ConfigError, "form must be ring or server, got 'tree'");
  TW_EXPECT_THROW(autoencoder("innovation=2"), ConfigError, "innovation must be in [0, 1], got 2");
  const auto codec = autoencoder("count=2,dense=0,width=2");
  for (const auto& bad : {at::tensor({5, 5, 0}, at::kInt), at::tensor({5, 100, 0}, at::kInt),
                          at::tensor({-1, 5, 0}, at::kInt)})
    EXPECT_THROW(codec->encode(at::ones({100}), {.agreed = {bad}}), DataError);
}

}  // namespace thinwire::test
