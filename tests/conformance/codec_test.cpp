// SPDX-License-Identifier: Apache-2.0
// What every registered codec keeps, on every type and on shapes with and without elements.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/conformance/codec_specs.h"
#include "tests/support/expect_throw.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/memory.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {

/// Every value of each option; a codec that is not listed is tested with its defaults.
std::vector<std::string> codec_specs() {
  const std::map<std::string, std::vector<std::string>> more{
      {"cast", {"cast{f16}", "cast{bf16}"}},
      {"topk",
       {"topk{ratio=0.1}", "topk{ratio=0.97}", "topk{count=3}", "topk{ratio=0.1,warmup=3}",
        "topk{ratio=adaptive,mean=0.1}"}},
      {"chunk_topk",
       {"chunk_topk{chunk=16,count=4}", "chunk_topk{chunk=16,count=4,bits=32,average=senders}",
        "chunk_topk{chunk=7,count=7,bits=5}"}},
      {"chunk_dct",
       {"chunk_dct{chunk=8,count=4}", "chunk_dct{count=4096}",
        "chunk_dct{chunk=8,count=8,bits=4}"}},
      {"autoencoder",
       {"autoencoder{ratio=0.2,dense=1,train=1000000,width=4}",
        "autoencoder{ratio=0.3,dense=0,train=1000000,width=2}",
        "autoencoder{form=server,ratio=0.2,dense=1,train=1000000,width=4}"}},
      {"pca", {"pca{block=8,keep=3,collect=1,use=3}", "pca{block=4,keep=1,collect=2,use=2}"}},
      {"threshold",
       {"threshold{ratio=0.1}", "threshold{method=trimmed,ratio=0.1}",
        "threshold{method=binary_search,ratio=0.1,life=3}", "threshold{value=0.01}",
        "threshold{ratio=0.2,values=mean}"}},
      {"randk", {"randk{ratio=0.2}", "randk{ratio=0.2,unbiased=yes}"}},
      {"sign", {"sign", "sign{scale=vote}"}},
      {"qsgd", {"qsgd", "qsgd{bits=2,block=8}", "qsgd{bits=8}"}},
      {"qsgd_max_norm",
       {"qsgd_max_norm", "qsgd_max_norm{bits=1,ranks=64}", "qsgd_max_norm{bits=13}"}},
      {"multi_scale", {"multi_scale", "multi_scale{bits=2,fine=6}"}},
      {"grandk", {"grandk", "grandk{ratio=0.2}", "grandk{count=70,unbiased=yes}"}},
      {"minmax",
       {"minmax", "minmax{bits=1,block=8,round=chance}", "minmax{bits=8,block=128}",
        "minmax{bits=15}"}},
      {"block_float", {"block_float", "block_float{bits=2,block=8}", "block_float{bits=16}"}},
      {"error_bounded",
       {"error_bounded", "error_bounded{bound=0}", "error_bounded{bound=1e-3,relative=no}"}},
      {"key_value", {"key_value", "key_value{base=1.1,levels=200}", "key_value{base=2,levels=0}"}},
      {"sign_weighted", {"sign_weighted", "sign_weighted{rule=fv,start=1}"}},
      {"sparse_sign", {"sparse_sign", "sparse_sign{ratio=1}"}},
      {"count_sketch",
       {"count_sketch", "count_sketch{ratio=0.5,rows=1}", "count_sketch{ratio=1,unbiased=yes}"}},
      {"terngrad", {"terngrad", "terngrad{clip=0}"}},
      {"onebit", {"onebit", "onebit{block=8}"}},
      {"scaled_int",
       {"scaled_int", "scaled_int{bits=4,ranks=64,round=chance}", "scaled_int{bits=15}"}},
      {"powersgd", {"powersgd", "powersgd{rank=3,rounds=1}", "powersgd{rank=2,rounds=4}"}}};
  std::vector<std::string> out;
  for (const auto& name : codecs().names()) {
    const auto found = more.find(name);
    if (found == more.end())
      out.push_back(name);
    else
      out.insert(out.end(), found->second.begin(), found->second.end());
  }
  return out;
}

namespace {

std::vector<std::vector<TensorDesc>> shapes(DType dtype) {
  return {{{"a", dtype, {0}}},
          {{"a", dtype, {}}},
          {{"a", dtype, {1}}},
          {{"a", dtype, {7}}},
          {{"a", dtype, {3, 5}}},
          {{"a", dtype, {2, 3, 5, 7}}},
          {{"a", dtype, {1031}}},
          {{"a", dtype, {16, 40}}, {"b", dtype, {0}}, {"c", dtype, {13}}, {"d", dtype, {5, 9}}}};
}

at::ScalarType type_of(DType dtype) { return dtype == DType::f64 ? at::kDouble : at::kFloat; }

/// Random, with exact zeros; equal; zero; huge; subnormal.
std::vector<at::Tensor> inputs(std::int64_t n, at::ScalarType type) {
  const auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(n + 1));
  at::Tensor some = at::randn({n}, random, at::TensorOptions(at::kFloat)).to(type);
  some.masked_fill_(at::arange(n).remainder(5).eq(0), 0);
  return {some, at::full({n}, -2.5, type), at::zeros({n}, type), some * 1e4, some * 1e-39};
}

/// What comes out is +1 or -1: there is no magnitude, and nothing may become something.
bool is_vote(const std::string& spec) {
  return spec == "sign{scale=vote}" || spec.starts_with("sign_weighted") ||
         spec.starts_with("sparse_sign");
}

std::unique_ptr<Codec> make(const std::string& text, std::span<const TensorDesc> descs) {
  const Spec spec = parse_spec(text);
  return codecs().find(spec.name).make(spec, descs);
}

Payload copied(const Payload& payload) {
  Payload out;
  for (const at::Tensor& part : payload.parts) out.parts.push_back(part.clone());
  return out;
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, Combine op) {
  if (op == Combine::max) return at::maximum(a, b);
  if (op == Combine::min) return at::minimum(a, b);
  if (op == Combine::bit_and) return at::bitwise_and(a, b);
  if (op == Combine::bit_or) return at::bitwise_or(a, b);
  return a + b;
}

/// What ranks with these values agree on before they encode.
std::vector<at::Tensor> agreed(Codec& codec, const std::vector<at::Tensor>& xs, Slot slot) {
  for (;;) {
    at::Tensor value;
    for (std::size_t rank = 0; rank < xs.size(); ++rank) {
      slot.rank = static_cast<Rank>(rank);
      const auto proposal = codec.propose(xs[rank], slot);
      if (!proposal) return slot.agreed;
      value = rank == 0 ? proposal->value.clone() : combined(value, proposal->value, proposal->op);
    }
    slot.agreed.push_back(value);
  }
}

/// All rounds of a step: what is decoded in all; x becomes what stays behind; bytes are added.
at::Tensor whole_step(Codec& codec, at::Tensor& x, Slot slot, Bytes& bytes) {
  at::Tensor out;
  slot.agreed = agreed(codec, {x}, slot);
  for (const at::Tensor& each : slot.agreed) bytes += static_cast<Bytes>(each.nbytes());
  for (; slot.round < codec.traits().rounds; ++slot.round) {
    Payload payload = copied(codec.encode(x, slot));
    bytes += payload.bytes();
    codec.residual(x, payload, x);
    codec.commit(payload);
    if (slot.round == 0) out = at::empty_like(x);
    codec.decode(payload, out, slot.round == 0 ? Write::set : Write::add);
  }
  return out;
}

class Codecs : public ::testing::TestWithParam<std::string> {
 protected:
  /// fn(codec, input, descs) for all types, shapes and inputs; a fresh codec each.
  template <class Fn>
  static void for_all(const Fn& fn) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::c64})
      for (const auto& descs : shapes(dtype))
        for (const at::Tensor& x : inputs(value_count(descs), type_of(dtype)))
          fn(*make(GetParam(), descs), x, descs);
  }
};

}  // namespace

// encode_rest() is its three parts, bit for bit.
TEST_P(Codecs, RestIsThatOfTheParts) {
  for_all([&](Codec& joined, const at::Tensor& x, const std::vector<TensorDesc>& descs) {
    const auto apart = make(GetParam(), descs);
    at::Tensor sum = x.flip(0).contiguous(), other = sum.clone();
    for (Slot slot{.step = 1, .seed = 9}; slot.step < 4; ++slot.step)
      for (slot.round = 0; slot.round < joined.traits().rounds; ++slot.round) {
        const at::Tensor added = slot.round == 0 ? x : at::Tensor();
        if (joined.propose(sum, slot)) return;  // needs ranks
        Payload a = copied(joined.encode_rest(sum, added, slot));
        if (added.defined()) other.add_(added);
        Payload b = copied(apart->encode(other, slot));
        apart->residual(other, b, other);
        ASSERT_EQ(a.parts.size(), b.parts.size());
        for (std::size_t p = 0; p < a.parts.size(); ++p)
          EXPECT_TRUE(at::equal(a.parts[p], b.parts[p])) << x.numel();
        EXPECT_TRUE(at::equal(sum, other)) << x.numel() << " " << (sum - other).abs().max();
        joined.commit(a);
        apart->commit(b);
      }
  });
}

TEST_P(Codecs, SizeIsThePrediction) {
  for_all([](Codec& codec, const at::Tensor& x, const std::vector<TensorDesc>& descs) {
    const auto predicted = payload_bytes(parse_chain(GetParam()), descs);
    if (codec.traits().fixed_size) {
      ASSERT_TRUE(predicted.has_value()) << "a fixed size stands in plans";
      EXPECT_EQ(codec.max_bytes() + codec.traits().proposals, *predicted);
    }
    const bool as_it_is = codec.traits().identity && descs[0].dtype == DType::bf16;
    Bytes bytes = 0;
    for (int step = 0; step < 2; ++step) {
      at::Tensor left = x.clone();
      whole_step(codec, left, {.step = step}, bytes);
    }
    if (as_it_is) return;  // halves travel as halves where nothing has widened them
    if (predicted) {
      EXPECT_EQ(bytes, 2 * *predicted) << "over two steps, " << x.numel();
    } else {
      EXPECT_LE(bytes, 2 * codec.max_bytes());
    }
  });
}

TEST_P(Codecs, PlansKnowWhetherPayloadsAdd) {
  const auto codec = make(GetParam(), std::vector<TensorDesc>{{"a", DType::f32, {8, 12}}});
  EXPECT_EQ(payload_sums(parse_chain(GetParam())), codec->traits().summable);
}

TEST_P(Codecs, KeepShapeAndFiniteness) {
  for_all([](Codec& codec, const at::Tensor& x, const std::vector<TensorDesc>&) {
    at::Tensor left = x.clone();
    Bytes bytes = 0;
    const at::Tensor out = whole_step(codec, left, {}, bytes);
    EXPECT_EQ(out.sizes(), x.sizes());
    EXPECT_TRUE(out.isfinite().all().item<bool>());
    EXPECT_TRUE(left.isfinite().all().item<bool>());
  });
}

TEST_P(Codecs, SentAndLeftAreWhatWasProduced) {
  if (GetParam().starts_with("sparse_sign")) return;  // forgets what it has voted on
  for_all([](Codec& codec, const at::Tensor& x, const std::vector<TensorDesc>&) {
    at::Tensor left = x.clone();
    Bytes bytes = 0;
    const at::Tensor out = whole_step(codec, left, {}, bytes);
    if (x.numel() == 0) return;
    const double scale = std::max({x.abs().max().item<double>(), out.abs().max().item<double>()});
    EXPECT_LE((out + left - x).abs().max().item<double>(), 4e-6 * scale + 1e-44)
        << "the decoded value counts, not the code";
  });
}

TEST_P(Codecs, ResidualInPlaceIsTheResidual) {
  for_all([](Codec& codec, const at::Tensor& x, const std::vector<TensorDesc>&) {
    const Payload payload = codec.encode(x, {});
    at::Tensor beside = at::empty_like(x), inside = x.clone();
    const Payload own = copied(payload);
    codec.residual(x, payload, beside);
    codec.residual(inside, payload, inside);
    EXPECT_TRUE(at::equal(beside, inside));
    at::Tensor of_copy = at::empty_like(x);
    codec.residual(x, own, of_copy);
    if (x.numel() > 0) {
      EXPECT_LE((of_copy - beside).abs().max().item<double>(),
                4e-6 * x.abs().max().item<double>() + 1e-44);
    }
  });
}

TEST_P(Codecs, SetIsZeroAndAdd) {
  for_all([](Codec& codec, const at::Tensor& x, const std::vector<TensorDesc>&) {
    const Payload payload = codec.encode(x, {});
    at::Tensor set = at::full_like(x, 77), added = at::zeros_like(x);
    codec.decode(payload, set, Write::set);
    codec.decode(payload, added, Write::add);
    EXPECT_TRUE(at::equal(set, added));
    if (x.numel() > 0 && x.eq(0).all().item<bool>() && !is_vote(GetParam())) {
      EXPECT_TRUE(set.eq(0).all().item<bool>()) << "nothing comes of nothing";
    }
  });
}

TEST_P(Codecs, SumsOfPayloadsAreSumsOfValues) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {16, 40}}, {"b", DType::f32, {13}}};
  for (const int n : {3, 64}) {
    const auto codec = make(GetParam(), descs);
    if (!codec->traits().summable) return;
    Payload sum;
    at::Tensor values = at::zeros({653});
    std::vector<at::Tensor> xs;
    for (int rank = 0; rank < n; ++rank) {
      const auto random =
          at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(rank));
      xs.push_back(at::randn({653}, random, at::TensorOptions(at::kFloat)));
    }
    Slot slot{.seed = 3};
    slot.agreed = agreed(*codec, xs, slot);
    for (int rank = 0; rank < n; ++rank) {
      slot.rank = rank;
      const Payload one = copied(codec->encode(xs[static_cast<std::size_t>(rank)], slot));
      codec->decode(one, values, Write::add);
      if (rank == 0)
        sum = one;
      else
        for (std::size_t p = 0; p < sum.parts.size(); ++p) sum.parts[p].add_(one.parts[p]);
    }
    at::Tensor at_once;
    codec->decode(sum, at_once, Write::set);
    // Transports sum halves in single precision; here every addition rounds.
    const double most = GetParam().starts_with("cast") ? 0.3 * n : 1e-3;
    EXPECT_LE((at_once - values).abs().max().item<double>(), most);
  }
}

TEST_P(Codecs, SameSeedSameBytes) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {16, 40}}, {"b", DType::f32, {13}}};
  const at::Tensor x = inputs(653, at::kFloat)[0];
  const Slot slot{.step = 5, .seed = 7, .exchange = 2, .rank = 1};
  const auto a = make(GetParam(), descs), b = make(GetParam(), descs);
  const Payload first = copied(a->encode(x, slot)), second = copied(b->encode(x, slot));
  ASSERT_EQ(first.parts.size(), second.parts.size());
  for (std::size_t p = 0; p < first.parts.size(); ++p)
    EXPECT_TRUE(at::equal(first.parts[p], second.parts[p]));
}

TEST_P(Codecs, ContractionAndUnbiasednessAreAsDeclared) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {300}}};
  const at::Tensor x = inputs(300, at::kFloat)[0];
  const auto codec = make(GetParam(), descs);
  const CodecTraits traits = codec->traits();
  at::Tensor mean = at::zeros({300}), out = at::empty({300});
  constexpr int kDraws = 3000;
  for (int step = 0; step < (traits.unbiased ? kDraws : 1); ++step) {
    codec->decode(codec->encode(x, {.step = step, .seed = 11}), out, Write::set);
    mean += out / (traits.unbiased ? kDraws : 1);
  }
  if (traits.contraction > 0) {
    const double lost = (x - out).square().sum().item<double>();
    EXPECT_LE(lost, (1 - traits.contraction) * x.square().sum().item<double>() + 1e-6);
  }
  if (traits.unbiased) {
    EXPECT_LT((mean - x).abs().max().item<double>(), 0.35) << "six deviations of the worst value";
  }
}

TEST_P(Codecs, BytesThatNobodyMakesAreRefusedOrHarmless) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {16, 40}}, {"b", DType::f32, {13}}};
  const auto codec = make(GetParam(), descs);
  const Payload good = copied(codec->encode(inputs(653, at::kFloat)[0], {}));
  at::Tensor out = at::zeros({653});
  EXPECT_THROW(codec->decode({}, out, Write::set), std::exception);
  if (codec->traits().identity) return;
  for (std::size_t p = 0; p < good.parts.size(); ++p) {
    if (good.parts[p].numel() == 0) continue;
    Payload shorter = copied(good);
    shorter.parts[p] = shorter.parts[p].narrow(0, 0, good.parts[p].numel() - 1).clone();
    EXPECT_THROW(codec->decode(shorter, out, Write::set), DataError);
    if (good.parts[p].scalar_type() != at::kByte) continue;
    Rng rng({.seed = 1});
    for (int round = 0; round < 500; ++round) {
      Payload flipped = copied(good);
      auto* bytes = flipped.parts[p].data_ptr<std::uint8_t>();
      const auto count = static_cast<std::uint64_t>(good.parts[p].numel());
      for (std::uint64_t change = 0; change <= rng.below(4); ++change)
        bytes[rng.below(count)] ^= static_cast<std::uint8_t>(1u << rng.below(8));
      try {
        codec->decode(flipped, out, Write::set);
      } catch (const DataError&) {
      }
    }
  }
}

TEST_P(Codecs, UnderErrorFeedbackAQuadraticConverges) {
  // A vote has no magnitude; without its bias a codec may lose more than it sends.
  if (is_vote(GetParam()) || GetParam().find("unbiased") != std::string::npos ||
      GetParam() == "terngrad{clip=0}" || GetParam().starts_with("minmax{bits=1"))
    return;
  const std::vector<TensorDesc> descs{{"a", DType::f32, {8, 12}}, {"b", DType::f32, {5}}};
  const auto codec = make(GetParam(), descs);
  const auto ef = memories().find("ef").make(parse_spec("ef"), descs);
  const at::Tensor goal = inputs(101, at::kFloat)[0];
  at::Tensor w = at::zeros({101});
  for (int step = 0; step < 800; ++step) {
    at::Tensor x = (w - goal) * 0.05;
    Slot slot{.step = step, .seed = 2};
    ef->before(x, slot);
    at::Tensor out;
    slot.agreed = agreed(*codec, {x}, slot);
    for (; slot.round < codec->traits().rounds; ++slot.round) {
      Payload payload = copied(codec->encode(x, slot));
      ef->sent(x, Sent({{codec.get(), &payload, 0, 101}}), slot);
      codec->commit(payload);
      codec->decode(payload, out, slot.round == 0 ? Write::set : Write::add);
    }
    w -= out;
  }
  EXPECT_LT((w - goal).norm().item<double>(), 0.02 * goal.norm().item<double>());
}

INSTANTIATE_TEST_SUITE_P(, Codecs, ::testing::ValuesIn(codec_specs()), [](const auto& info) {
  std::string name;
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace thinwire
