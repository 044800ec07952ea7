// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/autoencoder_net.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

using Row = ConvStack::Row;

constexpr float kSlope = 0.01F;  // of leaky ReLU below zero

void draw(ConvLayer& layer, Rng& rng) {
  layer.weight = at::empty({layer.kernel, layer.from, layer.to}, at::kFloat);
  layer.bias = at::zeros({layer.to}, at::kFloat);
  // A transposed one of stride 2 reaches each output through half of its kernel.
  const double inputs = static_cast<double>(layer.from * layer.kernel) / (layer.up ? 2 : 1);
  for (float& one : floats_in(layer.weight))
    one = static_cast<float>(rng.normal() * std::sqrt(2 / inputs));
  for (const int i : {0, 1}) {
    const Tensor& like = i == 0 ? layer.weight : layer.bias;
    layer.first[i] = at::zeros_like(like);
    layer.second[i] = at::zeros_like(like);
    layer.grad[i].assign(static_cast<std::size_t>(like.numel()), 0);
  }
}

/// fn(place in the input, place in the output) for all that this one of the kernel brings together,
/// of an input of this length.
template <class Fn>
void for_places(const ConvLayer& layer, std::int64_t length, std::int64_t of_kernel, const Fn& fn) {
  if (layer.kernel == 1) {
    for (std::int64_t i = 0; i < length; ++i) fn(i, i);
    return;
  }
  const std::int64_t shorter = layer.up ? length : length / 2;
  for (std::int64_t j = of_kernel == 0 ? 1 : 0; j < shorter; ++j) {
    const std::int64_t longer = 2 * j + of_kernel - 1;
    layer.up ? fn(j, longer) : fn(longer, j);
  }
}

/// fn(which of the kernel, first row, rows) for pieces of a matrix that stay in the nearest cache
/// while all places pass by.
template <class Fn>
void for_pieces(std::int64_t kernel, std::int64_t rows, const Fn& fn) {
  constexpr std::int64_t kRows = 16;
  for (std::int64_t t = 0; t < kernel; ++t)
    for (std::int64_t r = 0; r < rows; r += kRows) fn(t, r, std::min(kRows, rows - r));
}

/// to += from times a matrix whose rows lie one after the other, four of them at a time.
__attribute__((always_inline)) inline void add_product_in(const float* __restrict from,
                                                          std::int64_t rows,
                                                          const float* __restrict matrix,
                                                          float* __restrict to,
                                                          std::int64_t columns) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float a = from[r], b = from[r + 1], c = from[r + 2], d = from[r + 3];
    const float *m = matrix + r * columns, *n = m + columns, *o = n + columns, *p = o + columns;
    for (std::int64_t i = 0; i < columns; ++i)
      to[i] += (a * m[i] + b * n[i]) + (c * o[i] + d * p[i]);
  }
  for (; r < rows; ++r)
    for (std::int64_t i = 0; i < columns; ++i) to[i] += from[r] * matrix[r * columns + i];
}
/// matrix += from times by, a column and a row.
__attribute__((always_inline)) inline void add_outer_in(const float* __restrict from,
                                                        std::int64_t rows,
                                                        const float* __restrict by,
                                                        float* __restrict matrix,
                                                        std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r, matrix += columns)
    for (std::int64_t i = 0; i < columns; ++i) matrix[i] += from[r] * by[i];
}

using VectorLoop = void(const float*, std::int64_t, const float*, float*, std::int64_t);
void add_product(const float* from, std::int64_t rows, const float* matrix, float* to,
                 std::int64_t columns) {
  add_product_in(from, rows, matrix, to, columns);
}
void add_outer(const float* from, std::int64_t rows, const float* by, float* matrix,
               std::int64_t columns) {
  add_outer_in(from, rows, by, matrix, columns);
}
#ifdef __x86_64__
// The same sums, each element's own, eight at a time.
__attribute__((target("avx2"))) void add_product_avx2(const float* from, std::int64_t rows,
                                                      const float* matrix, float* to,
                                                      std::int64_t columns) {
  add_product_in(from, rows, matrix, to, columns);
}
__attribute__((target("avx2"))) void add_outer_avx2(const float* from, std::int64_t rows,
                                                    const float* by, float* matrix,
                                                    std::int64_t columns) {
  add_outer_in(from, rows, by, matrix, columns);
}
struct VectorLoops {
  bool wide = kernels::simd() != kernels::Simd::scalar;
  VectorLoop* product = wide ? add_product_avx2 : add_product;
  VectorLoop* outer = wide ? add_outer_avx2 : add_outer;
};
#else
struct VectorLoops {
  VectorLoop* product = add_product;
  VectorLoop* outer = add_outer;
};
#endif

Row convolve(const ConvLayer& layer, const Row& x) {
  const std::int64_t length = static_cast<std::int64_t>(x.size()) / layer.from;
  const std::int64_t out_length = layer.kernel == 1 ? length : (layer.up ? 2 * length : length / 2);
  const auto bias = floats_of(layer.bias);
  Row out;
  out.reserve(static_cast<std::size_t>(out_length * layer.to));
  for (std::int64_t i = 0; i < out_length; ++i) out.insert(out.end(), bias.begin(), bias.end());
  const float* weight = layer.weight.const_data_ptr<float>();
  const VectorLoops loops;
  for_pieces(layer.kernel, layer.from, [&](std::int64_t t, std::int64_t first, std::int64_t rows) {
    const float* piece = weight + (t * layer.from + first) * layer.to;
    for_places(layer, length, t, [&](std::int64_t in, std::int64_t at) {
      loops.product(x.data() + in * layer.from + first, rows, piece, out.data() + at * layer.to,
                    layer.to);
    });
  });
  if (!layer.linear)
    for (float& one : out) one = one > 0 ? one : kSlope * one;
  return out;
}

/// For the gradient of what came out: that of x; adds to those of weight and bias.
Row convolve_back(ConvLayer& layer, const Row& x, const Row& grad) {
  const std::int64_t length = static_cast<std::int64_t>(x.size()) / layer.from;
  for (std::size_t i = 0; i < grad.size(); ++i)
    layer.grad[1][i % static_cast<std::size_t>(layer.to)] += grad[i];
  const float* weight = layer.weight.const_data_ptr<float>();
  Row turned(static_cast<std::size_t>(layer.weight.numel()));  // {kernel, to, from}
  const std::int64_t each = layer.from * layer.to;
  for (std::int64_t t = 0; t < layer.kernel; ++t)
    for (std::int64_t f = 0; f < layer.from; ++f)
      for (std::int64_t o = 0; o < layer.to; ++o)
        turned[static_cast<std::size_t>(t * each + o * layer.from + f)] =
            weight[t * each + f * layer.to + o];
  Row out(x.size(), 0);
  const VectorLoops loops;
  for_pieces(layer.kernel, layer.from, [&](std::int64_t t, std::int64_t first, std::int64_t rows) {
    float* piece = layer.grad[0].data() + t * each + first * layer.to;
    for_places(layer, length, t, [&](std::int64_t in, std::int64_t at) {
      loops.outer(x.data() + in * layer.from + first, rows, grad.data() + at * layer.to, piece,
                  layer.to);
    });
  });
  for_pieces(layer.kernel, layer.to, [&](std::int64_t t, std::int64_t first, std::int64_t rows) {
    const float* piece = turned.data() + t * each + first * layer.from;
    for_places(layer, length, t, [&](std::int64_t in, std::int64_t at) {
      loops.product(grad.data() + at * layer.to + first, rows, piece, out.data() + in * layer.from,
                    layer.from);
    });
  });
  return out;
}

/// The `count`-th step, from 1 on; the gradient is zero then.
void adam(Tensor& value, Row& grad, Tensor& first, Tensor& second, double rate,
          std::int64_t count) {
  const auto t = static_cast<double>(count);
  const auto by =
      static_cast<float>(rate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)));
  auto *to = value.data_ptr<float>(), *m = first.data_ptr<float>(), *v = second.data_ptr<float>();
  for (std::size_t i = 0; i < grad.size(); ++i) {
    m[i] = 0.9F * m[i] + 0.1F * grad[i];
    v[i] = 0.999F * v[i] + 0.001F * (grad[i] * grad[i]);
    to[i] -= by * m[i] / (std::sqrt(v[i]) + 1e-8F);
    grad[i] = 0;
  }
}

void visit_fitting(StateVisitor& visitor, const std::string& name, Tensor& value) {
  Tensor kept = value;
  visitor.tensor(name, kept);
  if (kept.defined() && kept.sizes() == value.sizes() && kept.scalar_type() == at::kFloat)
    value = kept.contiguous();
}

Row row_of(const Tensor& values) {
  const Tensor dense = values.contiguous();
  const auto all = floats_of(dense);
  return {all.begin(), all.end()};
}

Tensor tensor_of(const Row& row) {
  Tensor out = at::empty({static_cast<std::int64_t>(row.size())}, at::kFloat);
  std::copy(row.begin(), row.end(), out.data_ptr<float>());
  return out;
}

}  // namespace

ConvStack::ConvStack(std::vector<ConvLayer> layers, std::uint64_t seed)
    : layers_(std::move(layers)) {
  Rng rng({.seed = seed, .rank = -1});
  for (ConvLayer& layer : layers_) draw(layer, rng);
}

ConvStack::Pass ConvStack::forward(Row row) const {
  Pass out{std::move(row)};
  for (const ConvLayer& layer : layers_) out.push_back(convolve(layer, out.back()));
  return out;
}

Row ConvStack::backward(const Pass& pass, Row grad) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Row& made = pass[i + 1];
    if (!layers_[i].linear)
      for (std::size_t e = 0; e < grad.size(); ++e) grad[e] *= made[e] > 0 ? 1 : kSlope;
    grad = convolve_back(layers_[i], pass[i], grad);
  }
  return grad;
}

void ConvStack::step(double rate) {
  ++steps_;
  for (ConvLayer& layer : layers_)
    for (const int i : {0, 1})
      adam(i == 0 ? layer.weight : layer.bias, layer.grad[i], layer.first[i], layer.second[i], rate,
           steps_);
}

void ConvStack::visit_state(StateVisitor& visitor, const std::string& name) {
  visitor.integer("trained/" + name, steps_);
  steps_ = std::max<std::int64_t>(steps_, 0);
  int i = 0;
  for (ConvLayer& layer : layers_) {
    const std::string place = fmt::format("layer{}/{}/", i++, name);
    visit_fitting(visitor, place + "weight", layer.weight);
    visit_fitting(visitor, place + "bias", layer.bias);
    for (const int p : {0, 1}) {
      visit_fitting(visitor, fmt::format("{}first{}", place, p), layer.first[p]);
      visit_fitting(visitor, fmt::format("{}second{}", place, p), layer.second[p]);
    }
  }
}

AutoencoderNet::AutoencoderNet(std::int64_t width, bool innovates, std::uint64_t seed)
    : width_(width), innovates_(innovates), seed_(seed) {
  const std::int64_t w = width;
  encoder_ = ConvStack({{.from = 1, .to = w},
                        {.from = w, .to = 2 * w},
                        {.from = 2 * w, .to = 4 * w},
                        {.from = 4 * w, .to = w},
                        {.from = w, .to = 4, .kernel = 1, .linear = true}},
                       seed);
  resize(1);
}

AutoencoderNet::Decoder AutoencoderNet::fresh() const {
  const std::int64_t w = width_, h = w / 2, more = innovates_ ? 1 : 0;
  Decoder out;
  out.up = ConvStack({{.from = 4, .to = h, .up = true},
                      {.from = h, .to = w, .up = true},
                      {.from = w, .to = 2 * w, .up = true},
                      {.from = 2 * w, .to = h, .up = true}},
                     seed_ + 1);
  out.last = ConvStack({{.from = h + more, .to = 1, .kernel = 1, .linear = true}}, seed_ + 2);
  return out;
}

void AutoencoderNet::resize(std::int64_t count) {
  while (decoders() > count) decoders_.pop_back();
  while (decoders() < count) decoders_.push_back(fresh());
}

Row AutoencoderNet::beside(const Row& made, const Tensor& innovation) const {
  if (!innovates_) return made;
  const Row more = innovation.defined() ? row_of(innovation) : Row();
  const auto h = static_cast<std::size_t>(width_ / 2), length = made.size() / h;
  Row out;
  out.reserve(length * (h + 1));
  for (std::size_t i = 0; i < length; ++i) {
    const auto from = made.begin() + static_cast<std::ptrdiff_t>(i * h);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(h));
    out.push_back(more.empty() ? 0 : more[i]);
  }
  return out;
}

Tensor AutoencoderNet::encode(const Tensor& values) const {
  return tensor_of(encoder_.forward(row_of(values)).back());
}

Tensor AutoencoderNet::decode(const Tensor& code, std::int64_t decoder,
                              const Tensor& innovation) const {
  const Decoder& one = decoders_.at(static_cast<std::size_t>(decoder));
  const Row made = beside(one.up.forward(row_of(code)).back(), innovation);
  return tensor_of(one.last.forward(made).back());
}

double AutoencoderNet::learn(std::int64_t decoder, const Tensor& values, const Tensor& innovation,
                             const Row& code, Row& to_code) {
  Decoder& one = decoders_[static_cast<std::size_t>(decoder)];
  const ConvStack::Pass up = one.up.forward(code);
  const ConvStack::Pass last = one.last.forward(beside(up.back(), innovation));
  const Row wanted = row_of(values);
  Row off = last.back();
  double lost = 0;
  for (std::size_t i = 0; i < off.size(); ++i) {
    off[i] -= wanted[i];
    lost += static_cast<double>(off[i]) * static_cast<double>(off[i]);
    off[i] /= static_cast<float>(off.size());
  }
  Row grad = one.last.backward(last, std::move(off));
  if (innovates_) {  // the channel of innovations is no part of what came up
    const auto h = static_cast<std::size_t>(width_ / 2);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      std::copy_n(grad.begin() + static_cast<std::ptrdiff_t>(i * (h + 1)), h,
                  grad.begin() + static_cast<std::ptrdiff_t>(i * h));
    grad.resize(wanted.size() * h);
  }
  grad = one.up.backward(up, std::move(grad));
  for (std::size_t i = 0; i < grad.size(); ++i) to_code[i] += grad[i];
  return lost;
}

AutoencoderNet::Loss AutoencoderNet::train(const Tensor& values, const Tensor& innovations,
                                           std::int64_t leader, double rate) {
  const std::int64_t rows = values.size(0);
  resize(rows);
  std::vector<ConvStack::Pass> passes;
  for (std::int64_t k = 0; k < rows; ++k)
    passes.push_back(encoder_.forward(row_of(values.select(0, k))));
  const auto m = static_cast<std::size_t>(leader);
  const Row code = passes[m].back();
  std::vector<Row> to_code(passes.size(), Row(code.size(), 0));
  Loss out;
  double lost = 0, energy = 0, apart = 0;
  for (std::int64_t k = 0; k < rows; ++k) {
    const Tensor innovation = innovations.defined() ? innovations.select(0, k) : Tensor();
    lost += learn(k, values.select(0, k), innovation, code, to_code[m]);
    for (const float one : passes[static_cast<std::size_t>(k)][0])
      energy += static_cast<double>(one) * static_cast<double>(one);
  }
  const auto length = static_cast<float>(code.size());
  for (std::size_t k = 0; k < passes.size(); ++k)
    for (std::size_t i = 0; k != m && i < code.size(); ++i) {
      const float off = passes[k].back()[i] - code[i];
      apart += static_cast<double>(off) * static_cast<double>(off);
      to_code[k][i] += off / length;
      to_code[m][i] -= off / length;
    }
  for (std::size_t k = 0; k < passes.size(); ++k) {
    encoder_.backward(passes[k], to_code[k]);
    decoders_[k].up.step(rate);
    decoders_[k].last.step(rate);
  }
  encoder_.step(rate);
  out.error = energy > 0 ? lost / energy : 0;
  out.similarity = apart / static_cast<double>(code.size());
  return out;
}

void AutoencoderNet::visit_state(StateVisitor& visitor, const std::string& name) {
  std::int64_t count = decoders();
  visitor.integer("decoders/" + name, count);
  constexpr std::int64_t kMost = 1 << 16;
  resize(std::clamp<std::int64_t>(count, 1, kMost));
  encoder_.visit_state(visitor, "encoder/" + name);
  for (std::size_t i = 0; i < decoders_.size(); ++i) {
    decoders_[i].up.visit_state(visitor, fmt::format("decoder{}/{}", i, name));
    decoders_[i].last.visit_state(visitor, fmt::format("decoder{}_last/{}", i, name));
  }
}

}  // namespace thinwire
