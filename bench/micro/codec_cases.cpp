// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/codec_cases.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "thinwire/codec/kernels/half.h"
#include "thinwire/codec/kernels/indices.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/matrix.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"

namespace thinwire::bench {
namespace {

using namespace thinwire::kernels;
using Floats = std::vector<float>;

/// What all cases share: a gradient, a memory that belongs to it, and room for results.
struct Tensors {
  explicit Tensors(std::int64_t elements)
      : gradient(static_cast<std::size_t>(elements)),
        memory(gradient.size()),
        out(gradient.size()),
        half(gradient.size()),
        bits(static_cast<std::size_t>(sign_bytes(elements))),
        packed(static_cast<std::size_t>(packed_bytes(elements, 4))) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3F);
    Floats some(65537);  // a length that no pattern of the kernels shares
    for (float& x : some) x = normal(random);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = some[i % some.size()] * (1 + static_cast<float>(i / some.size() % 13) / 16);
  }
  Floats gradient, memory, out;
  std::vector<std::uint16_t> half;
  std::vector<std::uint8_t> bits, packed, index_bytes;
  Selection sent, received;
  TopK top;
  Floats p, q;
  RngKey key{.seed = 1};
};
using Shared = std::shared_ptr<Tensors>;

/// Runs `run` with vector code and with the plain loops from the same state, and compares
/// `results`.
template <class Results>
std::function<void()> same_as_plain(const Shared& t, std::function<void()> run, Results results) {
  return [=] {
    const Tensors before = *t;
    const Simd wide = simd();
    run();
    const auto got = results(*t);
    *t = before;
    use_simd(Simd::scalar);
    run();
    use_simd(wide);
    if (results(*t) != got) throw Error("vector code and plain loops differ");
    *t = before;
  };
}

void add_half(std::vector<Case>& cases, const Shared& t, Half format, const std::string& name) {
  const auto encode = [=] { encode_half(format, t->gradient, t->half); };
  const auto decode = [=] { decode_half(format, t->half, t->out, Write::add); };
  cases.push_back({"cast{" + name + "} encode", format == Half::f16 ? 0.8 : 0.9, 1, 0.5,
                   "half as many bytes are written", encode,
                   same_as_plain(t, encode, [](const Tensors& x) { return x.half; })});
  cases.push_back({"cast{" + name + "} decode and add", 0.8, 1.5, 1, "the sum is read and written",
                   decode, same_as_plain(t, decode, [](const Tensors& x) { return x.out; })});
}

void add_signs(std::vector<Case>& cases, const Shared& t) {
  const auto encode = [=] { pack_signs(t->gradient, t->bits); };
  const auto decode = [=] { decode_signs(t->bits, scaled_signs(1e-3F), t->out, Write::add); };
  const auto feed_back = [=] {
    const double sum = accumulate_sum_abs(t->memory, t->gradient);
    const auto scale = static_cast<float>(sum / static_cast<double>(t->memory.size()));
    pack_signs_residual(t->memory, scaled_signs(scale), t->bits);
  };
  const auto bits = [](const Tensors& x) { return x.bits; };
  cases.push_back({"sign encode", 0.7, 1, 1.0 / 32, "", encode, same_as_plain(t, encode, bits)});
  cases.push_back({"sign decode and add", 0.7, 1 + 1.0 / 32, 1, "the sum is read and written",
                   decode, same_as_plain(t, decode, [](const Tensors& x) { return x.out; })});
  cases.push_back(
      {"ef|sign encode and residual", 2, 3, 2 + 1.0 / 32,
       "the scale is known after the first pass, the residual needs it", feed_back,
       same_as_plain(t, feed_back, [](const Tensors& x) { return std::pair(x.bits, x.memory); })});
}

void add_levels(std::vector<Case>& cases, const Shared& t) {
  const auto encode = [=] {
    const Levels levels{max_abs(t->gradient), 7};
    encode_levels(t->gradient, levels, t->key, 4, t->packed);
  };
  const auto feed_back = [=] {
    const Levels levels{accumulate_max_abs(t->memory, t->gradient), 7};
    encode_levels_residual(t->memory, levels, t->key, 4, t->packed);
  };
  const auto decode = [=] { decode_levels(t->packed, 4, {1e-3F, 7}, t->out, Write::add); };
  const auto packed = [](const Tensors& x) { return x.packed; };
  cases.push_back({"qsgd{bits=4} encode", 1.5, 2, 0.125, "the scale is the largest of all elements",
                   encode, same_as_plain(t, encode, packed)});
  cases.push_back({"ef|qsgd{bits=4} encode and residual", 0, 3, 2.125,
                   "the scale is known after the first pass, the residual needs it", feed_back,
                   same_as_plain(t, feed_back,
                                 [](const Tensors& x) { return std::pair(x.packed, x.memory); })});
  cases.push_back({"qsgd{bits=4} decode and add", 0, 1.125, 1, "the sum is read and written",
                   decode, same_as_plain(t, decode, [](const Tensors& x) { return x.out; })});
}

void check_topk(Tensors& t, std::int64_t k, const std::function<void()>& run) {
  const Floats before = t.memory;
  Floats sum = before;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += t.gradient[i];
  Selection wanted;
  reference::select_largest(sum, k, wanted);
  run();
  zero_at(sum, wanted.indices);
  if (t.sent.indices != wanted.indices || t.sent.values != wanted.values || t.memory != sum)
    throw Error("top-k differs from sorting");
  t.memory = before;
}

void add_topk(std::vector<Case>& cases, const Shared& t) {
  const auto n = static_cast<std::int64_t>(t->gradient.size()), k = n / 100;
  t->index_bytes.resize(static_cast<std::size_t>(kernels::index_bytes(n, k)));
  const auto encode = [=] {
    t->top.take(t->memory, t->gradient, k, t->sent);
    pack_indices(t->sent.indices, n, t->index_bytes);
  };
  const auto decode = [=] {
    t->received.indices.resize(static_cast<std::size_t>(k));
    unpack_indices(t->index_bytes, n, t->received.indices);
    decode_sparse(t->received.indices, t->sent.values, t->out, Write::add);
  };
  cases.push_back({"ef|topk{ratio=0.01} encode and residual", 1.3, 2, 1,
                   "one pass: candidates are collected while the memory is added to", encode,
                   [=] { check_topk(*t, k, encode); }});
  cases.push_back({"topk{ratio=0.01} decode and add", 0, 0.15, 0.15,
                   "a cache line for each element sent", decode, [=] {
                     encode();
                     decode();
                     if (t->received.indices != t->sent.indices)
                       throw Error("indices are not read back");
                   }});
  const auto threshold = [=] {
    accumulate_at_least(t->memory, t->gradient, 0.05F, t->sent);
    zero_at(t->memory, t->sent.indices);
  };
  cases.push_back({"ef|threshold encode and residual", 0, 2, 1, "one pass", threshold,
                   same_as_plain(t, threshold, [](const Tensors& x) {
                     return std::pair(x.sent.indices, x.memory);
                   })});
}

void add_low_rank(std::vector<Case>& cases, const Shared& t, int rank, double target) {
  const auto n = static_cast<std::int64_t>(t->gradient.size());
  const MatrixShape shape{n / 4000, 4000};
  const auto used = static_cast<std::size_t>(shape.elements());
  const auto run = [=] {
    const std::span<float> memory(t->memory.data(), used), out(t->out.data(), used);
    const std::span<const float> gradient(t->gradient.data(), used);
    t->p.resize(static_cast<std::size_t>(rank * shape.rows));
    if (t->q.size() != static_cast<std::size_t>(rank * shape.columns)) {
      t->q.resize(static_cast<std::size_t>(rank * shape.columns));
      for (std::size_t i = 0; i < t->q.size(); ++i) t->q[i] = t->gradient[i] * 1e3F;
    }
    accumulate_times(memory, gradient, shape, rank, t->q, t->p);
    orthonormalise(t->p, shape.rows, rank);
    transposed_times(memory, shape, rank, t->p, t->q);
    subtract_product(memory, shape, rank, t->p, t->q, out, Write::set);
  };
  cases.push_back({"ef|powersgd{rank=" + std::to_string(rank) + "} all passes", target, 4, 3,
                   "Q needs the whole P, and the residual the whole Q", run,
                   same_as_plain(t, run, [](const Tensors& x) {
                     return std::pair(std::pair(x.p, x.q), std::pair(x.memory, x.out));
                   })});
}

}  // namespace

std::vector<Case> make_cases(std::int64_t elements) {
  const auto tensors = std::make_shared<Tensors>(elements);
  std::vector<Case> cases;
  add_half(cases, tensors, Half::f16, "f16");
  add_half(cases, tensors, Half::bf16, "bf16");
  add_signs(cases, tensors);
  add_levels(cases, tensors);
  add_topk(cases, tensors);
  add_low_rank(cases, tensors, 1, 2.7);
  add_low_rank(cases, tensors, 2, 0);
  add_low_rank(cases, tensors, 4, 5);
  add_low_rank(cases, tensors, 8, 0);
  return cases;
}

}  // namespace thinwire::bench
