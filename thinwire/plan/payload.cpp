// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/payload.h"

#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"

namespace thinwire {

#define TW_PLUGIN(name) void register_##name(PayloadRegistry& registry);
#include "builtin_codec.inc"
#undef TW_PLUGIN

namespace {

PayloadRegistry& all_payloads() {
  static PayloadRegistry registry = [] {
    PayloadRegistry out("codec");
#define TW_PLUGIN(name) register_##name(out);
#include "builtin_codec.inc"
#undef TW_PLUGIN
    return out;
  }();
  return registry;
}

}  // namespace

const PayloadRegistry& payloads() { return all_payloads(); }

void add_payload(const std::string& name, PayloadFn bytes, std::string help) {
  all_payloads().add(name, std::move(bytes), std::move(help));
}

const std::vector<std::string>& memory_names() {
  static const std::vector<std::string> names{
#define TW_PLUGIN(name) #name,
#include "builtin_codec_memory.inc"
#undef TW_PLUGIN
  };
  return names;
}

namespace {

const Spec& codec_of(std::span<const Spec> form) {
  static const Spec none{.name = "none"};
  return form.empty() ? none : form.back();
}
const PayloadFacts* facts_of(const Spec& codec) {
  const auto& all = payloads().entries();
  const auto found = all.find(codec.name);
  return found == all.end() ? nullptr : &found->second.make;
}

}  // namespace

std::optional<Bytes> payload_bytes(std::span<const Spec> form,
                                   std::span<const TensorDesc> tensors) {
  const PayloadFacts* facts = facts_of(codec_of(form));
  return facts ? facts->bytes(codec_of(form), tensors) : std::nullopt;
}

bool payload_sums(std::span<const Spec> form) {
  const PayloadFacts* facts = facts_of(codec_of(form));
  return facts && facts->sums;
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

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

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

}  // namespace thinwire
