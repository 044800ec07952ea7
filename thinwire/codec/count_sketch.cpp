// SPDX-License-Identifier: Apache-2.0
// A table of random sums of the bucket, which ranks add: linear in both directions.
// Charikar, Chen, Farach-Colton, "Finding Frequent Items in Data Streams" (2002); Ivkin, Rothchild,
// Ullah et al., "Communication-efficient Distributed SGD with Sketching" (2019); Rothchild, Panda,
// Ullah et al., "FetchSGD: Communication-Efficient Federated Learning with Sketching" (2020).
// Update rule: in each of r rows value i has a column h and a sign s, drawn for all ranks from
// (seed, exchange, step); table[row][h] += s x[i]; value[i] = a / r times the sum over rows of s
// table[row][h], of the mean of the tables. a = 1 with unbiased=yes; else a = 1 / (1 + (n - 1) / (r
// c)), which loses least: the share 1 - a of |x|^2 on average, and so converges under `ef`.
// Bytes: 4 r c, c columns: `ratio` of n in all.
// Passes over memory: one to encode and one to decode, r places of the table for each value.
// Departs from FetchSGD, which reads the largest values off the table by medians and keeps momentum
// and error as tables: a sum of decodes would not be the decode of a sum. Columns are drawn anew in
// every step, so that no two values share one for ever.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

struct SketchSize {
  std::int64_t rows = 0, columns = 0;
};

SketchSize count_sketch_size(SpecReader& reader, std::int64_t n) {
  const double ratio = reader.number("ratio", 0.1);
  const std::int64_t rows = reader.integer("rows", 3);
  if (!(ratio > 0 && ratio <= 1))
    throw ConfigError(fmt::format("count_sketch: ratio must be in (0, 1], got {}", ratio));
  if (rows < 1 || rows > 4)
    throw ConfigError(fmt::format("count_sketch: rows must be in [1, 4], got {}", rows));
  const auto cells = static_cast<std::int64_t>(ratio * static_cast<double>(n));
  return {rows, n == 0 ? 0 : std::max<std::int64_t>(1, cells / rows)};
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_count_sketch(PayloadRegistry& registry) {
  registry.add(
      "count_sketch", summed([](const Spec& spec, std::span<const TensorDesc> tensors) {
        SpecReader reader(spec);
        const SketchSize size = count_sketch_size(reader, value_count(tensors));
        return 4 * size.rows * size.columns;
      }),
      "random sums of the bucket, added in the transport {ratio=0.1, rows=3, unbiased=no}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/single_codec.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

class CountSketch : public SingleCodec {
 public:
  CountSketch(std::int64_t n, SketchSize size, bool unbiased)
      : n_(n), size_(size), unbiased_(unbiased) {
    const auto cells = static_cast<double>(size.rows * size.columns);
    damping_ = unbiased ? 1 : cells / (cells + static_cast<double>(n) - 1);
  }

  CodecTraits traits() const override {
    return {.summable = true, .fixed_size = true, .unbiased = unbiased_};
  }
  Bytes max_bytes() const override { return 4 * size_.rows * size_.columns; }

  Payload encode(const Tensor& values, const Slot& slot) override {
    const Tensor x = values.to(at::kFloat);
    const Rng rng({.seed = slot.seed, .exchange = slot.exchange, .step = slot.step, .rank = -1});
    key_ = rng.key();
    stream_ = rng.stream();
    if (!table_.defined()) table_ = at::empty({size_.rows * size_.columns}, at::kFloat);
    table_.zero_();
    const auto from = floats_of(x);
    const auto table = floats_in(table_);
    for (std::size_t i = 0; i < from.size(); ++i)
      for_each_row(i, [&](std::size_t cell, float sign) { table[cell] += sign * from[i]; });
    return {.parts = {table_}};
  }

 private:
  /// each(cell of the table, +1 or -1): a word of one block of random numbers for each row.
  template <class Each>
  void for_each_row(std::size_t i, Each each) const {
    const auto words =
        philox4x32({static_cast<std::uint32_t>(i),
                    static_cast<std::uint32_t>(std::uint64_t{i} >> 32), stream_[0], stream_[1]},
                   key_, 7);
    const auto rows = static_cast<std::size_t>(size_.rows);
    const auto columns = static_cast<std::uint64_t>(size_.columns);
    for (std::size_t row = 0; row < rows; ++row)
      each(row * columns + (std::uint64_t{words[row] >> 1} * columns >> 31),
           (words[row] & 1) != 0 ? -1.0F : 1.0F);
  }

  std::int64_t count() const override { return n_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    if (payload.parts.size() != 1 || payload.parts[0].scalar_type() != at::kFloat ||
        payload.parts[0].numel() != size_.rows * size_.columns || !payload.parts[0].is_contiguous())
      throw DataError(fmt::format("count_sketch: a payload must be {} sums in one part",
                                  size_.rows * size_.columns));
    const auto table = floats_of(payload.parts[0]);
    const auto to = floats_in(out);
    const float share = by * static_cast<float>(damping_ / static_cast<double>(size_.rows));
    for (std::size_t i = 0; i < to.size(); ++i) {
      float sum = 0;
      for_each_row(i, [&](std::size_t cell, float sign) { sum += sign * table[cell]; });
      to[i] = mode == Write::set ? share * sum : to[i] + share * sum;
    }
  }

  std::int64_t n_;
  SketchSize size_;
  bool unbiased_;
  double damping_;
  std::array<std::uint32_t, 2> key_{}, stream_{};  ///< of this step
  Tensor table_;
};

}  // namespace

void register_count_sketch(CodecRegistry& registry) {
  registry.add("count_sketch", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::int64_t n = value_count(tensors);
    const SketchSize size = count_sketch_size(reader, n);
    const bool unbiased = reader.flag("unbiased", false);
    reader.finish();
    return std::make_unique<CountSketch>(n, size, unbiased);
  });
}

}  // namespace thinwire
#endif
