// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/payload.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

Bytes none_bytes(const Spec&, std::span<const TensorDesc> tensors) {
  Bytes bytes = 0;
  for (const TensorDesc& tensor : tensors) bytes += dense_bytes(tensor);
  return bytes;
}

Bytes cast_bytes(const Spec&, std::span<const TensorDesc> tensors) {
  return 2 * value_count(tensors);
}

Bytes topk_bytes(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  const std::int64_t n = value_count(tensors);
  const std::int64_t k = selected_count(reader, spec.name, 0.01, n);
  const Bytes each = value_bytes(tensors);
  return std::min(n * each, k * each + position_bytes(n, k));
}

Bytes randk_bytes(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  return selected_count(reader, spec.name, 0.01, value_count(tensors)) * value_bytes(tensors);
}

Bytes sign_bytes(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  const Bytes scale = reader.text("scale", "mean") == "vote" ? 0 : 4;
  Bytes bytes = bytes_of_bits(value_count(tensors));
  for (const TensorDesc& tensor : tensors) bytes += value_count(tensor) > 0 ? scale : 0;
  return bytes;
}

Bytes qsgd_bytes(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  const std::int64_t n = value_count(tensors), bits = reader.integer("bits", 4);
  const std::int64_t block = reader.integer("block", 512);
  if (bits < 2 || bits > 8)
    throw ConfigError(fmt::format("qsgd: bits must be in [2, 8], got {}", bits));
  if (block < 8 || block % 8 != 0)
    throw ConfigError(fmt::format("qsgd: block must be a multiple of 8, got {}", block));
  return bytes_of_bits(bits * n) + 4 * ((n + block - 1) / block);
}

Bytes powersgd_bytes(const Spec& spec, std::span<const TensorDesc> tensors) {
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
    values += one.rank > 0 ? one.rank * (one.rows + one.columns) * rounds : 2 * value_count(tensor);
  }
  return values * 4 / 2;
}

PayloadRegistry& all_payloads() {
  static PayloadRegistry registry = [] {
    PayloadRegistry out("payload of codec");
    out.add("none", none_bytes, "");
    out.add("cast", cast_bytes, "");
    out.add("topk", topk_bytes, "");
    out.add("randk", randk_bytes, "");
    out.add("sign", sign_bytes, "");
    out.add("qsgd", qsgd_bytes, "");
    out.add("powersgd", powersgd_bytes, "");
    return out;
  }();
  return registry;
}

}  // namespace

const PayloadRegistry& payloads() { return all_payloads(); }

void add_payload(const std::string& name, PayloadFn bytes) {
  all_payloads().add(name, std::move(bytes), "");
}

std::optional<Bytes> payload_bytes(std::span<const Spec> form,
                                   std::span<const TensorDesc> tensors) {
  const Spec none{.name = "none"};
  const Spec& codec = form.empty() ? none : form.back();
  const auto& all = payloads().entries();
  const auto found = all.find(codec.name);
  if (found == all.end()) return std::nullopt;
  return found->second.make(codec, tensors);
}

std::vector<TensorDesc> tensors_of(const Bucket& bucket, const std::vector<TensorDesc>& tensors) {
  std::vector<TensorDesc> out;
  for (const Slice& slice : bucket.slices) {
    const TensorDesc& whole = tensors.at(static_cast<std::size_t>(slice.tensor));
    out.push_back(whole);
    if (slice.begin != 0 || slice.end != elements(whole))
      out.back().shape = {slice.end - slice.begin};
  }
  return out;
}

std::int64_t value_count(const TensorDesc& tensor) {
  return elements(tensor) * (is_complex(tensor.dtype) ? 2 : 1);
}

std::int64_t value_count(std::span<const TensorDesc> tensors) {
  std::int64_t count = 0;
  for (const TensorDesc& tensor : tensors) count += value_count(tensor);
  return count;
}

Bytes value_bytes(std::span<const TensorDesc> tensors) {
  if (tensors.empty()) return 4;
  return tensors[0].dtype == DType::f64 || tensors[0].dtype == DType::c128 ? 8 : 4;
}

std::int64_t selected_count(SpecReader& reader, const std::string& codec, double ratio,
                            std::int64_t n) {
  const double share = reader.number("ratio", -1);
  const std::int64_t count = reader.integer("count", -1);
  if (share != -1 && count != -1)
    throw ConfigError(fmt::format("{}: ratio and count say the same thing twice; give one", codec));
  if (share != -1 && !(share > 0 && share <= 1))
    throw ConfigError(fmt::format("{}: ratio must be in (0, 1], got {}", codec, share));
  if (count != -1 && count < 1)
    throw ConfigError(fmt::format("{}: count must be at least 1, got {}", codec, count));
  if (n == 0) return 0;
  if (count != -1) return std::min(count, n);
  const double wanted = (share == -1 ? ratio : share) * static_cast<double>(n);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, n);
}

Bytes position_bytes(std::int64_t n, std::int64_t k) {
  if (k == 0) return 0;
  Bytes least = bytes_of_bits(n);
  for (int low = 0; (n >> low) > 0; ++low)
    least = std::min(least, bytes_of_bits(k * low) + bytes_of_bits(k + ((n - 1) >> low)));
  return least;
}

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

}  // namespace thinwire
