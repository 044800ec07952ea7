// SPDX-License-Identifier: Apache-2.0
// Low-rank factors of each matrix, by power iteration that starts from the step before.
// Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization" (2019), arXiv 1905.13727.
// Update rule, M the matrix of a tensor (first extent times the rest), P and Q kept:
//   even round: A = orthonormal(P); Q = mean over ranks of M' A; value += A Q'; M -= A (M' A)'
//   odd round:  A = orthonormal(Q); P = mean over ranks of M A;  value += P A'; M -= (M A) A'
// where the last line of each takes this rank's own product: what stays behind.
// Bytes: r (rows + columns) values a matrix in two rounds, one all_reduce each; vectors, and
// matrices whose factors are no smaller, travel dense in the first round of a step. Departs from
// the paper: as in the authors' later library, the residual is each rank's own, and what the first
// factor has caught is not sent again with the second.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

/// A tensor as it is sent: a matrix of `rows` times `columns` in two factors of `rank` columns, or
/// dense (rank 0) where the factors are no smaller.
struct LowRank {
  std::int64_t rows = 0, columns = 0, rank = 0;
};

LowRank low_rank_of(const TensorDesc& tensor, std::int64_t rank, double gain) {
  LowRank out{.rows = 1, .columns = 1};
  if (tensor.shape.size() < 2 || is_complex(tensor.dtype)) return out;
  out.rows = tensor.shape[0];
  for (std::size_t i = 1; i < tensor.shape.size(); ++i) out.columns *= tensor.shape[i];
  rank = std::min({rank, out.rows, out.columns});
  const auto factors = static_cast<double>(rank * (out.rows + out.columns));
  if (factors * gain < static_cast<double>(out.rows * out.columns)) out.rank = rank;
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_powersgd(PayloadRegistry& registry) {
  registry.add(
      "powersgd", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const std::int64_t rank = reader.integer("rank", 1), rounds = reader.integer("rounds", 2);
        const double gain = reader.number("gain", 1);
        if (rank < 1 || rank > 64)
          throw ConfigError(fmt::format("powersgd: rank must be in [1, 64], got {}", rank));
        if (rounds < 1 || rounds > 16)
          throw ConfigError(fmt::format("powersgd: rounds must be in [1, 16], got {}", rounds));
        if (!(gain >= 1))
          throw ConfigError(fmt::format("powersgd: gain must be at least 1, got {}", gain));
        std::int64_t values = 0;  // of two steps, in which each factor travels `rounds` times
        for (const TensorDesc& tensor : tensors) {
          const LowRank one = low_rank_of(tensor, rank, gain);
          values +=
              one.rank > 0 ? one.rank * (one.rows + one.columns) * rounds : 2 * value_count(tensor);
        }
        return values * 4 / 2;
      }),
      "low-rank factors of matrices by warm-started power iteration {rank=1, rounds=2, gain=1}");
}

}  // namespace thinwire
#else
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/matrix.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

/// A factor holds its columns one after the other: {rank, extent}.
struct Matrix {
  std::string name;
  std::int64_t begin = 0;
  kernels::MatrixShape shape;
  int rank = 0;
  Tensor p, q;
  std::uint64_t emptied = 0;  ///< columns of this round's factor that were zero
};
/// Values that travel as they are.
struct Dense {
  std::int64_t begin = 0, count = 0;
};

/// The same on all ranks.
void fill_normal(std::span<float> column, std::uint64_t seed, const std::string& name,
                 std::int64_t round) {
  Rng rng({.seed = seed ^ hash_bytes(name.data(), static_cast<std::int64_t>(name.size())),
           .step = round,
           .rank = -1});
  for (float& value : column) value = static_cast<float>(rng.normal());
}

class PowerSgd : public Codec {
 public:
  PowerSgd(std::span<const TensorDesc> tensors, std::int64_t rank, int rounds, double gain,
           Bytes bytes)
      : rounds_(rounds), bytes_(bytes) {
    for (const TensorDesc& tensor : tensors) {
      const LowRank one = low_rank_of(tensor, rank, gain);
      const std::int64_t count = value_count(tensor);
      if (one.rank > 0)
        matrices_.push_back({.name = tensor.name,
                             .begin = total_,
                             .shape = {one.rows, one.columns},
                             .rank = static_cast<int>(one.rank)});
      else if (count > 0)
        dense_.push_back({total_, count});
      total_ += count;
    }
  }

  CodecTraits traits() const override {
    return {.summable = true,
            .fixed_size = rounds_ % 2 == 0,
            .rounds = rounds_,
            .merges = true,
            .joins = true};
  }
  Bytes max_bytes() const override { return bytes_; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    Tensor x = values.to(at::kFloat);
    return encode_sum(x, {}, slot);
  }

  /// The first product is taken while the memory is added to.
  Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot) override {
    if (sum.scalar_type() != at::kFloat) return Codec::encode_rest(sum, x, slot);
    Payload out = encode_sum(sum, x, slot);
    residual(sum, out, sum);
    return out;
  }

 private:
  /// Of x + added, which x then is; nothing is added where `added` is undefined.
  Payload encode_sum(Tensor& x, const Tensor& added, const Slot& slot) {
    first_ = slot.round == 0;
    even_ = count_ % 2 == 0;
    seed_ = slot.seed;
    Tensor& room = even_ ? even_room_ : odd_room_;
    const std::int64_t count = payload_values();
    if (!room.defined() || room.numel() < count) room = at::empty({count}, x.options());
    Tensor out = room.narrow(0, 0, count);
    std::int64_t next = 0;
    if (first_)
      for (const Dense& one : dense_) {
        Tensor place = x.narrow(0, one.begin, one.count);
        if (added.defined()) place.add_(added.narrow(0, one.begin, one.count));
        out.narrow(0, next, one.count).copy_(place);
        next += one.count;
      }
    for (Matrix& one : matrices_) {
      Tensor& a = even_ ? one.p : one.q;
      const std::int64_t extent = even_ ? one.shape.rows : one.shape.columns;
      if (!a.defined()) {
        a = at::empty({one.rank, extent}, x.options());
        fill_normal(floats_in(a), seed_, one.name, 0);
      }
      one.emptied = kernels::orthonormalise(floats_in(a), extent, one.rank);
      const auto product = factor_in(out, one, next);
      const auto more = added.defined() ? matrix_of(added, one) : std::span<const float>();
      (even_ ? kernels::accumulate_transposed : kernels::accumulate_times)(
          matrix_in(x, one), more, one.shape, one.rank, floats_of(a), product);
    }
    return {.parts = {out}};
  }

 public:
  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    Tensor values = checked(payload);
    if (!out.defined()) out = at::empty({total_}, values.options());
    if (out.scalar_type() != at::kFloat) {
      Tensor narrow = at::empty({total_}, values.options());
      decode(payload, narrow, Write::set);
      mode == Write::set ? out.copy_(narrow) : out.add_(narrow);
      return;
    }
    std::int64_t next = 0;
    for (const Dense& one : dense_) {
      Tensor place = out.narrow(0, one.begin, one.count);
      if (first_) {
        const Tensor from = values.narrow(0, next, one.count);
        mode == Write::set ? place.copy_(from) : place.add_(from);
        next += one.count;
      } else if (mode == Write::set) {
        place.zero_();
      }
    }
    for (const Matrix& one : matrices_) {
      const auto factor = factor_in(values, one, next);
      kernels::subtract_product({}, one.shape, one.rank, even_ ? floats_of(one.p) : factor,
                                even_ ? factor : floats_of(one.q), matrix_in(out, one), mode);
    }
  }

  void commit(Payload& merged) override {
    Tensor values = checked(merged);
    std::int64_t next = 0;
    if (first_)
      for (const Dense& one : dense_) next += one.count;
    ++count_;
    for (Matrix& one : matrices_) {
      const auto factor = factor_in(values, one, next);
      const auto extent = static_cast<std::int64_t>(factor.size()) / one.rank;
      Tensor& kept = even_ ? one.q : one.p;
      if (!kept.defined()) kept = at::empty({one.rank, extent}, values.options());
      const auto to = floats_in(kept);
      std::copy(factor.begin(), factor.end(), to.begin());
      // The product of a column of zeros is one, and would stay one.
      for (int column = 0; column < one.rank; ++column)
        if ((one.emptied >> column) & 1)
          fill_normal(to.subspan(static_cast<std::size_t>(column * extent),
                                 static_cast<std::size_t>(extent)),
                      seed_ + static_cast<std::uint64_t>(column), one.name, count_);
    }
  }

  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (x.scalar_type() != at::kFloat) return Codec::residual(x, sent, out);
    Tensor values = checked(sent);
    if (!out.is_same(x)) out.copy_(x);
    std::int64_t next = 0;
    if (first_)
      for (const Dense& one : dense_) {
        out.narrow(0, one.begin, one.count).zero_();
        next += one.count;
      }
    for (const Matrix& one : matrices_) {
      const auto factor = factor_in(values, one, next);
      kernels::subtract_product(matrix_in(out, one), one.shape, one.rank,
                                even_ ? floats_of(one.p) : factor,
                                even_ ? factor : floats_of(one.q), {}, Write::set);
    }
  }

  void visit_state(StateVisitor& visitor) override {
    visitor.integer("rounds", count_);
    for (Matrix& one : matrices_) {
      visitor.tensor("p/" + one.name, one.p);
      visitor.tensor("q/" + one.name, one.q);
      keep_fitting(one.p, one.rank, one.shape.rows);
      keep_fitting(one.q, one.rank, one.shape.columns);
    }
  }

 private:
  /// A factor of another rank or shape, from before a change: starts anew.
  static void keep_fitting(Tensor& factor, std::int64_t rank, std::int64_t extent) {
    if (factor.defined() && (factor.sizes() != at::IntArrayRef({rank, extent}) ||
                             factor.scalar_type() != at::kFloat || !factor.is_contiguous()))
      factor.reset();
  }
  std::int64_t payload_values() const {
    std::int64_t values = 0;
    if (first_)
      for (const Dense& one : dense_) values += one.count;
    for (const Matrix& one : matrices_)
      values += one.rank * (even_ ? one.shape.columns : one.shape.rows);
    return values;
  }
  const Tensor& checked(const Payload& payload) const {
    if (payload.parts.size() != 1 || payload.parts[0].dim() != 1 ||
        payload.parts[0].scalar_type() != at::kFloat ||
        payload.parts[0].numel() != payload_values() || !payload.parts[0].is_contiguous())
      throw DataError(
          fmt::format("powersgd: a payload must be {} values in one part", payload_values()));
    return payload.parts[0];
  }
  /// The factor that this round sends, and `next` behind it.
  std::span<float> factor_in(Tensor& values, const Matrix& one, std::int64_t& next) const {
    const std::int64_t count = one.rank * (even_ ? one.shape.columns : one.shape.rows);
    const auto out =
        floats_in(values).subspan(static_cast<std::size_t>(next), static_cast<std::size_t>(count));
    next += count;
    return out;
  }
  static std::span<const float> matrix_of(const Tensor& values, const Matrix& one) {
    return floats_of(values).subspan(static_cast<std::size_t>(one.begin),
                                     static_cast<std::size_t>(one.shape.elements()));
  }
  static std::span<float> matrix_in(Tensor& values, const Matrix& one) {
    return floats_in(values).subspan(static_cast<std::size_t>(one.begin),
                                     static_cast<std::size_t>(one.shape.elements()));
  }

  int rounds_;
  Bytes bytes_;
  std::int64_t total_ = 0, count_ = 0;
  std::uint64_t seed_ = 0;
  bool first_ = true, even_ = true;  ///< of the round that was encoded last
  std::vector<Matrix> matrices_;
  std::vector<Dense> dense_;
  Tensor even_room_, odd_room_;
};

}  // namespace

void register_powersgd(CodecRegistry& registry) {
  registry.add("powersgd", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t rank = reader.integer("rank", 1), rounds = reader.integer("rounds", 2);
    const double gain = reader.number("gain", 1);
    reader.finish();
    const Bytes bytes = *payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<PowerSgd>(tensors, rank, static_cast<int>(rounds), gain, bytes);
  });
}

}  // namespace thinwire
#endif
