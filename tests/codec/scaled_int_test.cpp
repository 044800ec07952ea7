// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"

namespace thinwire {
namespace {

std::unique_ptr<Codec> scaled_int(const std::string& spec, std::vector<std::int64_t> counts) {
  std::vector<TensorDesc> descs;
  for (const auto n : counts) descs.push_back({"w" + std::to_string(n), DType::f32, {n}});
  return codecs().find("scaled_int").make(parse_spec(spec), descs);
}

/// What several ranks get together, by integers that are added, and the scale they agree on.
at::Tensor sum_over_ranks(Codec& codec, const std::vector<at::Tensor>& xs) {
  Slot slot{.seed = 1};
  at::Tensor scales;
  for (std::size_t rank = 0; rank < xs.size(); ++rank) {
    slot.rank = static_cast<Rank>(rank);
    const auto proposal = codec.propose(xs[rank], slot);
    EXPECT_EQ(proposal->op, Combine::max);
    scales = rank == 0 ? proposal->value : at::maximum(scales, proposal->value);
  }
  slot.agreed = {scales};
  EXPECT_FALSE(codec.propose(xs[0], slot).has_value());
  at::Tensor words;
  for (std::size_t rank = 0; rank < xs.size(); ++rank) {
    slot.rank = static_cast<Rank>(rank);
    const at::Tensor own = codec.encode(xs[rank], slot).parts[0];
    words = rank == 0 ? own.clone() : words + own;
  }
  at::Tensor out;
  codec.decode({.parts = {words}}, out, Write::set);
  return out;
}

}  // namespace

TEST(ScaledInt, FieldsHoldTheSumsAndShareWords) {
  // ceil(log2(2 n s + 1)) bits: 63 levels of 3 ranks have 9, so 7 a word.
  EXPECT_EQ(scaled_int("scaled_int{bits=7,ranks=3}", {1000})->max_bytes(), 8 * 143);
  EXPECT_EQ(scaled_int("scaled_int{bits=7,ranks=2}", {1000})->max_bytes(), 1000);
  EXPECT_EQ(scaled_int("scaled_int{bits=7,ranks=64}", {1000})->max_bytes(), 8 * 250);
}

TEST(ScaledInt, TheExtremesOfManyRanksAddUp) {
  for (const int ranks : {2, 3, 64}) {
    const auto codec = scaled_int("scaled_int{bits=7,ranks=" + std::to_string(ranks) + "}", {5});
    const at::Tensor x = at::tensor({2.0f, -2.0f, 0.0f, 2.0f, 1.0f / 64});
    const at::Tensor sum =
        sum_over_ranks(*codec, std::vector<at::Tensor>(static_cast<std::size_t>(ranks), x));
    EXPECT_TRUE(at::allclose(sum.narrow(0, 0, 4), ranks * x.narrow(0, 0, 4))) << ranks << sum;
  }
}

TEST(ScaledInt, AllRanksRoundToOneGridOfEachTensor) {
  const auto codec = scaled_int("scaled_int{bits=8}", {700, 9});
  std::vector<at::Tensor> xs;
  at::Tensor sum = at::zeros({709});
  for (int rank = 0; rank < 3; ++rank) {
    xs.push_back(at::randn({709}) * (rank + 1));
    xs.back().narrow(0, 700, 9).mul_(1000);
    sum += xs.back();
  }
  const at::Tensor out = sum_over_ranks(*codec, xs);
  for (const auto& [begin, count] : {std::pair{0, 700}, std::pair{700, 9}}) {
    double largest = 0;
    for (const at::Tensor& x : xs)
      largest = std::max(largest, x.narrow(0, begin, count).abs().max().item<double>());
    const at::Tensor lost = (out - sum).narrow(0, begin, count).abs();
    EXPECT_LE(lost.max().item<double>(), 3 * 0.5001 * largest / 127) << "half a level a rank";
  }
}

TEST(ScaledInt, MoreRanksThanFieldsHoldAreRefused) {
  const auto codec = scaled_int("scaled_int{bits=4,ranks=2}", {8});
  TW_EXPECT_THROW(sum_over_ranks(*codec, std::vector<at::Tensor>(3, at::ones({8}))), ConfigError,
                  "write scaled_int{ranks=3}");
}

TEST(ScaledInt, ReadsItsOptions) {
  TW_EXPECT_THROW(scaled_int("scaled_int{bits=16}", {1}), ConfigError, "[2, 15], got 16");
  TW_EXPECT_THROW(scaled_int("scaled_int{ranks=0}", {1}), ConfigError, "[1, 65536], got 0");
  TW_EXPECT_THROW(scaled_int("scaled_int{round=up}", {1}), ConfigError, "nearest or chance");
}

}  // namespace thinwire
