// SPDX-License-Identifier: Apache-2.0
// As few bits as keep every value within a bound of itself; zeros stay zeros.
// Di, Cappello, "Fast Error-bounded Lossy HPC Data Compression with SZ" (2016), for the levels of
// twice the bound; Huang, Di, Yu, Li, Cappello, "cuSZp" (2023), for blocks of one width; Jin, Zhang
// et al., "COMET" (2021), for its use in training.
// Update rule: level = the integer nearest to x / d, d = 255/128 of the bound; blocks of 64 values
// are packed in the bits that their largest level needs, or travel as they are where that is more
// than 16; value = mean over ranks of level d. The bound is absolute, or a share of the largest |x|
// of the rank's bucket.
// Bytes: depend on the values; 4, and a byte and 64 times the width for each block.
// Passes over memory: two to encode with a relative bound, else one; one to decode.
// Departs from the papers: no prediction from neighbours, which in a gradient have little in
// common, and no entropy coding; the level's step is a 256th smaller, for rounding.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_error_bounded(PayloadRegistry& registry) {
  registry.add(
      "error_bounded",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double bound = reader.number("bound", 1e-3);
        if (!(bound >= 0 && bound < 1e30))
          throw ConfigError(
              fmt::format("error_bounded: bound must be at least 0 and finite, got {}", bound));
        return std::nullopt;
      },
      "within a bound of each value {bound=1e-3, relative=yes: to the largest, or no: absolute}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include <algorithm>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/kernels/ranges.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class ErrorBounded : public SingleCodec {
 public:
  ErrorBounded(std::int64_t count, double bound, bool relative)
      : count_(count), bound_(static_cast<float>(bound)), relative_(relative) {}

  CodecTraits traits() const override { return {.fixed_size = false}; }
  Bytes max_bytes() const override { return kernels::bounded_bytes(count_); }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    const float scale = relative_ ? kernels::max_abs(floats_of(x)) : 1;
    bytes_.clear();
    kernels::encode_bounded(floats_of(x), bound_ * scale, bytes_);
    Tensor out = at::empty({static_cast<std::int64_t>(bytes_.size())}, at::kByte);
    std::copy(bytes_.begin(), bytes_.end(), out.data_ptr<std::uint8_t>());
    return {.parts = {out}};
  }

 private:
  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    const Tensor& bytes = checked_any_bytes("error_bounded", payload);
    kernels::decode_bounded(section(bytes, 0, bytes.numel()), by, floats_in(out), mode);
  }

  std::int64_t count_;
  float bound_;
  bool relative_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

void register_error_bounded(CodecRegistry& registry) {
  registry.add("error_bounded", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const double bound = reader.number("bound", 1e-3);
    const bool relative = reader.flag("relative", true);
    reader.finish();
    payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<ErrorBounded>(value_count(tensors), bound, relative);
  });
}

}  // namespace thinwire
#endif
