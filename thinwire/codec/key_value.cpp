// SPDX-License-Identifier: Apache-2.0
// The values that are not zero, by key: exact keys, values on a logarithmic scale. For gradients
// that are a short list of (feature, value) in a wide bucket.
// Yang, Chen, Zeng, Gao, "FastSGD: A Fast Compressed SGD Framework for Distributed Machine
// Learning" (2021).
// Update rule: m = the largest |x| of the bucket; q = log_base(m / |x|), rounded; what has q >
// levels, so is less than m base^-levels, is not sent; value = mean over ranks of sign(x) m
// base^-q, within sqrt(base) - 1 of x relatively. Keys: differences in the narrowest of four
// widths, chosen for the message.
// Bytes: depend on the values; 12, and for each one sent its key's width and 2 bits, and 1 +
// ceil(log2(levels + 1)) bits of value.
// Passes over memory: two to encode (largest, what is sent); a cache line for each value to decode.
// Departs from the paper, whose constants are not published: base and levels are options; codes do
// not add, so every rank decodes all payloads, where the paper has a server.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_key_value(PayloadRegistry& registry) {
  registry.add(
      "key_value",
      [](const Spec& spec, std::span<const TensorDesc>) {
        SpecReader reader(spec);
        const double base = reader.number("base", 1.5);
        const std::int64_t levels = reader.integer("levels", 15);
        if (!(base > 1 && base <= 16))
          throw ConfigError(fmt::format("key_value: base must be in (1, 16], got {}", base));
        if (levels < 0 || levels > 32767)
          throw ConfigError(fmt::format("key_value: levels must be in [0, 32767], got {}", levels));
        return std::nullopt;
      },
      "values that are not zero, on a logarithmic scale, with exact keys {base=1.5, levels=15}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/keys.h"
#include "thinwire/codec/kernels/levels.h"
#include "thinwire/codec/single_codec.h"

namespace thinwire {
namespace {

class KeyValue : public SingleCodec {
 public:
  KeyValue(std::int64_t count, double base, std::int64_t levels)
      : count_(count), per_log_(1 / std::log(base)) {
    // By products, so that all machines have the same powers.
    double power = 1;
    for (std::int64_t q = 0; q <= levels; ++q, power /= base) powers_.push_back(power);
    bits_ = 1 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(levels)));
  }

  CodecTraits traits() const override { return {.fixed_size = false}; }
  Bytes max_bytes() const override {
    return 12 + (count_ + 3) / 4 + 4 * count_ + kernels::packed_bytes(count_, bits_);
  }

  Payload encode(const Tensor& values, const Slot&) override {
    const Tensor x = values.to(at::kFloat);
    const float largest = kernels::max_abs(floats_of(x));
    select(floats_of(x), largest);
    std::vector<std::uint8_t> bytes(8);
    std::memcpy(bytes.data(), &largest, 4);
    const auto sent = static_cast<std::uint32_t>(keys_.size());
    std::memcpy(bytes.data() + 4, &sent, 4);
    kernels::pack_keys(keys_, bytes);
    const std::size_t begin = bytes.size();
    bytes.resize(begin + static_cast<std::size_t>(kernels::packed_bytes(sent, bits_)));
    kernels::pack_fields(fields_, bits_, std::span(bytes).subspan(begin));
    Tensor out = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    std::copy(bytes.begin(), bytes.end(), out.data_ptr<std::uint8_t>());
    return {.parts = {out}};
  }

 private:
  /// Keys and fields of what is sent: q, and the sign in the upper bit.
  void select(std::span<const float> x, float largest) {
    keys_.clear();
    fields_.clear();
    const auto most = static_cast<double>(powers_.size() - 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0) continue;
      const double q = std::rint(std::log(double{largest} / std::fabs(double{x[i]})) * per_log_);
      if (!(q <= most)) continue;
      keys_.push_back(static_cast<std::uint32_t>(i));
      const auto code = static_cast<unsigned>(std::max(q, 0.0));
      fields_.push_back(static_cast<std::uint16_t>(code | (x[i] < 0 ? 1U << (bits_ - 1) : 0)));
    }
  }

  std::int64_t count() const override { return count_; }
  void add(const Payload& payload, Tensor& out, float by, Write mode) const override {
    if (mode == Write::set) out.zero_();
    const Tensor& tensor = checked_any_bytes("key_value", payload);
    const std::span<const std::uint8_t> bytes = section(tensor, 0, tensor.numel());
    if (bytes.size() < 8) throw DataError("key_value: a payload has at least 8 bytes");
    float largest = 0;
    std::uint32_t sent = 0;
    std::memcpy(&largest, bytes.data(), 4);
    std::memcpy(&sent, bytes.data() + 4, 4);
    if (!std::isfinite(largest) || largest < 0)
      throw DataError(
          fmt::format("key_value: the scale must be finite and at least 0, got {}", largest));
    if (sent > count_)
      throw DataError(fmt::format("key_value: {} values of {} cannot be sent", sent, count_));
    std::vector<std::uint32_t> keys(sent);
    std::vector<std::uint16_t> fields(sent);
    const std::size_t read = kernels::unpack_keys(bytes.subspan(8), count_, keys);
    kernels::unpack_fields(bytes.subspan(8 + read), bits_, fields);
    const auto to = floats_in(out);
    const unsigned sign = 1U << (bits_ - 1);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const unsigned q = fields[i] & (sign - 1);
      if (q >= powers_.size())
        throw DataError(
            fmt::format("key_value: a level must be below {}, got {}", powers_.size(), q));
      const auto value = static_cast<float>(double{largest} * powers_[q]);
      to[keys[i]] += (fields[i] & sign) != 0 ? -by * value : by * value;
    }
  }

  std::int64_t count_;
  double per_log_;
  std::vector<double> powers_;  ///< base^-q
  int bits_ = 0;                ///< of a field
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint16_t> fields_;
};

}  // namespace

void register_key_value(CodecRegistry& registry) {
  registry.add("key_value", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const double base = reader.number("base", 1.5);
    const std::int64_t levels = reader.integer("levels", 15);
    reader.finish();
    payload_bytes(std::span(&spec, 1), tensors);  // checks the options
    return std::make_unique<KeyValue>(value_count(tensors), base, levels);
  });
}

}  // namespace thinwire
#endif
