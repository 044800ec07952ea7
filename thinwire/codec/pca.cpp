// SPDX-License-Identifier: Apache-2.0
// Slices of a gradient in a basis that was fitted to slices before: sums travel compressed.
// Yu, Lin, Narra, Li, Li, Kim, Schwing, Annavaram, Avestimehr, "GradiVeQ: Vector Quantization for
// Bandwidth-Efficient Gradient Aggregation in Distributed CNN Training", NeurIPS 2018, arXiv
// 1811.03617.
// Update rule, in turn:
//   `collect` steps: send x; from the mean g of all ranks, for each tensor, M += sum of s s' over
//     slices s of `block` consecutive elements
//   then U = the `keep` leading eigenvectors of M, the same on all ranks as M is
//   `use` steps: send y = U' s of each slice; value = U (mean of y)
// Bytes: 4 n while it collects, then 4 keep / block of that; tensors of fewer than 4 slices, and
// what is left behind the last slice, travel dense; one all_reduce.
// Passes over memory: one to encode, one to decode, 2 keep operations a value each.
// Departs from the paper: the basis is of second moments, not of a covariance, so no mean has to be
// taken off and put back, and the code is linear; 256 slices a step and tensor are looked at.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

struct PcaOptions {
  std::int64_t block = 512, keep = 64, collect = 100, use = 400;
};

inline PcaOptions read_pca(const Spec& spec) {
  SpecReader reader(spec);
  PcaOptions out{.block = reader.integer("block", 512),
                 .keep = reader.integer("keep", 64),
                 .collect = reader.integer("collect", 100),
                 .use = reader.integer("use", 400)};
  reader.finish();
  if (out.block < 2 || out.block > 4096)
    throw ConfigError(fmt::format("pca: block must be in [2, 4096], got {}", out.block));
  if (out.keep < 1 || out.keep > std::min<std::int64_t>(64, out.block))
    throw ConfigError(
        fmt::format("pca: keep must be in [1, min(64, block = {})], got {}", out.block, out.keep));
  if (out.collect < 1)
    throw ConfigError(fmt::format("pca: collect must be at least 1 step, got {}", out.collect));
  if (out.use < 1)
    throw ConfigError(fmt::format("pca: use must be at least 1 step, got {}", out.use));
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_pca(PayloadRegistry& registry) {
  registry.add(
      "pca", summed([](const Spec& spec, std::span<const TensorDesc>) -> std::optional<Bytes> {
        read_pca(spec);
        return std::nullopt;  // one size while it collects, another after
      }),
      "slices in a basis fitted to slices before {block=512, keep=64, collect=100, use=400}");
}

}  // namespace thinwire
#else
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/matrix.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

/// Slices of a tensor, and the basis that was fitted to them.
struct SlicedTensor {
  std::string name;
  std::int64_t begin = 0;
  kernels::MatrixShape shape;  ///< slices x block
  Tensor basis;                ///< keep x block: a row a vector
  Tensor moments;              ///< block x block, in double precision
};

/// Leading eigenvectors of a symmetric matrix by repeated products, from where `basis` stands.
/// Plain loops and kernels of one order of sums: the same on every machine.
void fit_basis(const Tensor& moments, Tensor& basis) {
  const std::int64_t n = moments.size(0), keep = basis.size(0);
  const auto* from = moments.const_data_ptr<double>();
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, from[i * n + i]);
  if (!(most > 0)) return;  // nothing has been seen
  Tensor scaled = at::empty({n, n}, at::kFloat), next = at::empty({keep, n}, at::kFloat);
  auto* to = scaled.data_ptr<float>();
  for (std::int64_t i = 0; i < n * n; ++i) to[i] = static_cast<float>(from[i] / most);
  kernels::orthonormalise(floats_in(basis), n, static_cast<int>(keep));
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; ++round) {
    kernels::accumulate_times(floats_in(scaled), {}, {n, n}, static_cast<int>(keep),
                              floats_of(basis), floats_in(next));
    kernels::orthonormalise(floats_in(next), n, static_cast<int>(keep));
    std::swap(basis, next);
  }
}

class Pca : public Codec {
 public:
  Pca(std::span<const TensorDesc> tensors, const PcaOptions& options) : options_(options) {
    constexpr std::int64_t kLeastSlices = 4;
    for (const TensorDesc& tensor : tensors) {
      const std::int64_t count = value_count(tensor), slices = count / options.block;
      std::int64_t sliced = 0;
      if (slices >= kLeastSlices) {
        sliced = slices * options.block;
        tensors_.push_back(
            {.name = tensor.name, .begin = total_, .shape = {slices, options.block}});
      }
      if (sliced < count) dense_.push_back({total_ + sliced, count - sliced});
      total_ += count;
    }
  }

  CodecTraits traits() const override {
    return {.summable = true, .fixed_size = false, .merges = true};
  }
  Bytes max_bytes() const override { return 4 * total_; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const std::int64_t place = count_ % (options_.collect + options_.use);
    compresses_ = place >= options_.collect && ready();
    seed_ = slot.seed;
    Tensor x = values.to(at::kFloat);
    const std::int64_t count = payload_values();
    if (!room_.defined() || room_.numel() < count) room_ = at::empty({count}, x.options());
    Tensor out = room_.narrow(0, 0, count);
    if (!compresses_) {
      out.copy_(x);
      return {.parts = {out}};
    }
    std::int64_t next = 0;
    for (const DenseRange& one : dense_) {
      out.narrow(0, next, one.count).copy_(x.narrow(0, one.begin, one.count));
      next += one.count;
    }
    for (const SlicedTensor& one : tensors_)
      kernels::accumulate_times(slices_in(x, one), {}, one.shape, keep(), floats_of(one.basis),
                                code_in(out, one, next));
    return {.parts = {out}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    Tensor values = checked(payload);
    decode_single(out, total_, mode, [&](Tensor& to, Write how) {
      if (!compresses_) {
        how == Write::set ? to.copy_(values) : to.add_(values);
        return;
      }
      std::int64_t next = 0;
      for (const DenseRange& one : dense_) {
        Tensor place = to.narrow(0, one.begin, one.count);
        const Tensor from = values.narrow(0, next, one.count);
        how == Write::set ? place.copy_(from) : place.add_(from);
        next += one.count;
      }
      for (const SlicedTensor& one : tensors_)
        kernels::subtract_product({}, one.shape, keep(), code_in(values, one, next),
                                  floats_of(one.basis), slices_in(to, one), how);
    });
  }

  void commit(Payload& merged) override {
    if (!compresses_) {
      const Tensor values = checked(merged);
      for (SlicedTensor& one : tensors_) collect(values, one);
    }
    ++count_;
    if (count_ % (options_.collect + options_.use) != options_.collect) return;
    for (SlicedTensor& one : tensors_) {
      if (!one.basis.defined()) draw(one);
      if (one.moments.defined()) fit_basis(one.moments, one.basis);
      one.moments.reset();
    }
  }

  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (x.scalar_type() != at::kFloat) return Codec::residual(x, sent, out);
    Tensor values = checked(sent);
    if (!compresses_) {
      out.zero_();
      return;
    }
    if (!out.is_same(x)) out.copy_(x);
    std::int64_t next = 0;
    for (const DenseRange& one : dense_) {
      out.narrow(0, one.begin, one.count).zero_();
      next += one.count;
    }
    for (const SlicedTensor& one : tensors_)
      kernels::subtract_product(slices_in(out, one), one.shape, keep(), code_in(values, one, next),
                                floats_of(one.basis), {}, Write::set);
  }

  void visit_state(StateVisitor& visitor) override {
    visitor.integer("steps", count_);
    count_ = std::max<std::int64_t>(count_, 0);
    for (SlicedTensor& one : tensors_) {
      visitor.tensor("basis/" + one.name, one.basis);
      visitor.tensor("moments/" + one.name, one.moments);
      keep_fitting(one.basis, options_.keep, at::kFloat);
      keep_fitting(one.moments, options_.block, at::kDouble);
    }
  }

 private:
  struct DenseRange {
    std::int64_t begin = 0, count = 0;
  };
  int keep() const { return static_cast<int>(options_.keep); }
  /// After a change of options or grouping a basis may be missing: then x goes dense, and what was
  /// missing is fitted in its time.
  bool ready() const {
    return std::all_of(tensors_.begin(), tensors_.end(),
                       [](const SlicedTensor& one) { return one.basis.defined(); });
  }
  void keep_fitting(Tensor& kept, std::int64_t rows, at::ScalarType type) const {
    if (kept.defined() && (kept.sizes() != at::IntArrayRef({rows, options_.block}) ||
                           kept.scalar_type() != type || !kept.is_contiguous()))
      kept.reset();
  }
  std::int64_t payload_values() const {
    if (!compresses_) return total_;
    std::int64_t count = 0;
    for (const DenseRange& one : dense_) count += one.count;
    for (const SlicedTensor& one : tensors_) count += one.shape.rows * options_.keep;
    return count;
  }
  Tensor checked(const Payload& payload) const {
    if (payload.parts.size() != 1 || payload.parts[0].dim() != 1 ||
        payload.parts[0].scalar_type() != at::kFloat ||
        payload.parts[0].numel() != payload_values() || !payload.parts[0].is_contiguous())
      throw DataError(
          fmt::format("pca: a payload must be {} values in one part", payload_values()));
    return payload.parts[0];
  }
  std::span<float> code_in(Tensor& values, const SlicedTensor& one, std::int64_t& next) const {
    const std::int64_t count = one.shape.rows * options_.keep;
    next += count;
    return floats_in(values).subspan(static_cast<std::size_t>(next - count),
                                     static_cast<std::size_t>(count));
  }
  static std::span<float> slices_in(Tensor& values, const SlicedTensor& one) {
    return floats_in(values).subspan(static_cast<std::size_t>(one.begin),
                                     static_cast<std::size_t>(one.shape.elements()));
  }
  void draw(SlicedTensor& one) const {
    one.basis = at::empty({options_.keep, options_.block}, at::kFloat);
    Rng rng(
        {.seed = seed_ ^ hash_bytes(one.name.data(), static_cast<std::int64_t>(one.name.size())),
         .rank = -1});
    for (float& value : floats_in(one.basis)) value = static_cast<float>(rng.normal());
  }
  void collect(const Tensor& values, SlicedTensor& one) const {
    constexpr std::int64_t kMostSlices = 256;
    const std::int64_t n = options_.block, looked_at = std::min(one.shape.rows, kMostSlices);
    if (!one.moments.defined()) one.moments = at::zeros({n, n}, at::kDouble);
    auto* to = one.moments.data_ptr<double>();
    for (std::int64_t i = 0; i < looked_at; ++i) {
      const float* slice =
          values.const_data_ptr<float>() + one.begin + i * one.shape.rows / looked_at * n;
      for (std::int64_t r = 0; r < n; ++r) {
        const double by = slice[r];
        if (by == 0) continue;
        for (std::int64_t c = 0; c < n; ++c) to[r * n + c] += by * static_cast<double>(slice[c]);
      }
    }
  }

  PcaOptions options_;
  std::int64_t total_ = 0, count_ = 0;
  std::uint64_t seed_ = 0;
  bool compresses_ = false;  ///< in the step that was encoded last
  std::vector<SlicedTensor> tensors_;
  std::vector<DenseRange> dense_;
  Tensor room_;
};

}  // namespace

void register_pca(CodecRegistry& registry) {
  registry.add("pca", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    return std::make_unique<Pca>(tensors, read_pca(spec));
  });
}

}  // namespace thinwire
#endif
