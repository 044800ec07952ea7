// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/profile.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/plan/tensor_json.h"

namespace thinwire {
namespace {

std::string fault(const Profile& profile) {
  const std::size_t count = profile.params.size();
  if (count == 0) return "the profile has no tensors";
  if (profile.forward_s.size() != count || profile.backward_s.size() != count)
    return fmt::format("{} tensors need as many forward_s and backward_s, got {} and {}", count,
                       profile.forward_s.size(), profile.backward_s.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& tensor = profile.params[i];
    for (const double seconds : {profile.forward_s[i], profile.backward_s[i]})
      if (!std::isfinite(seconds) || seconds < 0)
        return fmt::format("tensor {} ('{}'): times must be finite and at least 0, got {}", i,
                           tensor.name, seconds);
    if (elements(tensor) < 0)
      return fmt::format("tensor {} ('{}'): the shape [{}] is negative or too large", i,
                         tensor.name, fmt::join(tensor.shape, ","));
  }
  if (!std::isfinite(profile.update_s) || profile.update_s < 0)
    return fmt::format("update_s must be finite and at least 0, got {}", profile.update_s);
  for (const auto& [spec, speed] : profile.codecs)
    for (const double rate : {speed.encode_bytes_per_s, speed.decode_bytes_per_s})
      if (!std::isfinite(rate) || rate < 0)
        return fmt::format("codec '{}': a speed must be finite and at least 0, got {}", spec, rate);
  return "";
}

}  // namespace

std::int64_t elements(const TensorDesc& tensor) {
  // -1 for a shape that no tensor has: the caller refuses it; sizes stay far from overflow in
  // bytes.
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) return -1;
    if (size == 0)
      empty = true;
    else if (count > kMost / size)
      return -1;
    else
      count *= size;
  }
  return empty ? 0 : count;
}

Bytes dense_bytes(const TensorDesc& tensor) { return elements(tensor) * dtype_bytes(tensor.dtype); }

bool Profile::operator==(const Profile& other) const {
  const auto same_speed = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.encode_bytes_per_s == b.second.encode_bytes_per_s &&
           a.second.decode_bytes_per_s == b.second.decode_bytes_per_s;
  };
  return params == other.params && forward_s == other.forward_s && backward_s == other.backward_s &&
         update_s == other.update_s &&
         std::equal(codecs.begin(), codecs.end(), other.codecs.begin(), other.codecs.end(),
                    same_speed);
}

std::string to_json(const Profile& profile) {
  Json tensors = Json::array();
  for (std::size_t i = 0; i < profile.params.size(); ++i) {
    Json tensor = tensor_to_json(profile.params[i]);
    tensor["forward_s"] = profile.forward_s.at(i);
    tensor["backward_s"] = profile.backward_s.at(i);
    tensors.push_back(std::move(tensor));
  }
  Json codecs = Json::object();
  for (const auto& [spec, speed] : profile.codecs)
    codecs[spec] = {{"encode_bytes_per_s", speed.encode_bytes_per_s},
                    {"decode_bytes_per_s", speed.decode_bytes_per_s}};
  return dump_lines({{"tensors", tensors}, {"update_s", profile.update_s}, {"codecs", codecs}},
                    "profile");
}

Profile profile_from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  known_keys(json, {"note", "tensors", "update_s", "codecs"}, source);
  Profile out;
  out.update_s = get_or<double>(json, "update_s", 0, source);
  for (const auto& item : get<Json::array_t>(json, "tensors", source)) {
    const auto place = fmt::format("{}: tensor {}", source, out.params.size());
    known_keys(item, {"name", "dtype", "shape", "forward_s", "backward_s"}, place);
    out.params.push_back(tensor_from_json(item, place));
    out.forward_s.push_back(get<double>(item, "forward_s", place));
    out.backward_s.push_back(get<double>(item, "backward_s", place));
  }
  const Json codecs = get_or<Json>(json, "codecs", Json::object(), source);
  if (!codecs.is_object()) throw DataError(fmt::format("{}: 'codecs' must be an object", source));
  for (const auto& [spec, item] : codecs.items()) {
    const auto place = fmt::format("{}: codec '{}'", source, spec);
    known_keys(item, {"encode_bytes_per_s", "decode_bytes_per_s"}, place);
    out.codecs[spec] = {get<double>(item, "encode_bytes_per_s", place),
                        get<double>(item, "decode_bytes_per_s", place)};
  }
  if (const auto why = fault(out); !why.empty())
    throw ConfigError(fmt::format("{}: {}", source, why));
  return out;
}

void validate(const Profile& profile) {
  if (const auto why = fault(profile); !why.empty()) throw ConfigError("profile: " + why);
}

std::vector<Seconds> ready_times(const Profile& profile) {
  std::vector<Seconds> out(profile.params.size());
  Seconds now = std::accumulate(profile.forward_s.begin(), profile.forward_s.end(), 0.0);
  for (std::size_t i = out.size(); i-- > 0;) out[i] = now += profile.backward_s[i];
  return out;
}

}  // namespace thinwire
