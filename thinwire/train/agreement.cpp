// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/version.h"

namespace thinwire {
namespace {

std::string packed(const std::vector<Declared>& mine) {
  Json list = Json::array();
  for (const Declared& one : mine)
    list.push_back(
        {one.name, one.dtype, one.shape, one.strides, one.buffer, one.frozen, one.excluded});
  return Json{{"version", kVersion}, {"tensors", list}}.dump();
}

struct Side {
  int rank = 0;
  std::string version;
  std::vector<Declared> tensors;
};

Side unpacked(int rank, const std::string& text) {
  const Json json = parse_json(text, fmt::format("the parameters of rank {}", rank));
  Side out{.rank = rank, .version = json.at("version").get<std::string>()};
  for (const Json& one : json.at("tensors"))
    out.tensors.push_back({one[0].get<std::string>(), one[1].get<std::string>(),
                           one[2].get<std::vector<std::int64_t>>(),
                           one[3].get<std::vector<std::int64_t>>(), one[4].get<bool>(),
                           one[5].get<bool>(), one[6].get<bool>()});
  return out;
}

std::string shown(const Declared& one) {
  return fmt::format("'{}' {}[{}]", one.name, one.dtype, fmt::join(one.shape, ","));
}

std::vector<std::string> only(const Side& here, const Side& there) {
  std::set<std::string> names;
  for (const auto& one : there.tensors) names.insert(one.name);
  std::vector<std::string> out;
  for (const auto& one : here.tensors)
    if (!names.contains(one.name)) out.push_back("'" + one.name + "'");
  return out;
}

std::string different_counts(const Side& a, const Side& b) {
  std::string text = fmt::format("rank {} has {} parameters and buffers, rank {} has {}", a.rank,
                                 a.tensors.size(), b.rank, b.tensors.size());
  const std::size_t common = std::min(a.tensors.size(), b.tensors.size());
  std::size_t i = 0;
  while (i < common && a.tensors[i].name == b.tensors[i].name) ++i;
  if (i < common)
    text +=
        fmt::format("; the first difference is at position {}: {} on rank {} against {} on rank {}",
                    i, shown(a.tensors[i]), a.rank, shown(b.tensors[i]), b.rank);
  for (const auto& [here, there] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (const auto names = only(*here, *there); !names.empty())
      text += fmt::format("; only rank {} has {}", here->rank, fmt::join(names, ", "));
  return text;
}

/// The difference of one position in words; empty if there is none.
std::string difference(const Side& a, const Side& b, std::size_t i) {
  const Declared &x = a.tensors[i], &y = b.tensors[i];
  if (x.name != y.name || x.dtype != y.dtype || x.shape != y.shape || x.buffer != y.buffer)
    return fmt::format("position {} is {}{} on rank {} and {}{} on rank {}", i,
                       x.buffer ? "buffer " : "", shown(x), a.rank, y.buffer ? "buffer " : "",
                       shown(y), b.rank);
  if (x.excluded != y.excluded)
    return fmt::format("'{}' is {} on rank {} and {} on rank {}", x.name,
                       x.excluded ? "left out" : "exchanged", a.rank,
                       y.excluded ? "left out" : "exchanged", b.rank);
  if (x.frozen != y.frozen)
    return fmt::format("'{}' is {} on rank {} and {} on rank {}", x.name,
                       x.frozen ? "frozen" : "trained", a.rank, y.frozen ? "frozen" : "trained",
                       b.rank);
  if (x.strides != y.strides)
    return fmt::format("'{}' has strides [{}] on rank {} and [{}] on rank {}", x.name,
                       fmt::join(x.strides, ","), a.rank, fmt::join(y.strides, ","), b.rank);
  return "";
}

std::string difference(const Side& a, const Side& b) {
  if (a.version != b.version)
    return fmt::format("rank {} runs version {} of the library, rank {} runs {}", a.rank, a.version,
                       b.rank, b.version);
  if (a.tensors.size() != b.tensors.size()) return different_counts(a, b);
  for (std::size_t i = 0; i < a.tensors.size(); ++i)
    if (auto text = difference(a, b, i); !text.empty()) return text;
  return "";
}

}  // namespace

void agree_on_parameters(Membership& group, const std::vector<Declared>& mine,
                         const std::string& when) {
  const auto all = group.all_gather("parameters " + when, packed(mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(
        fmt::format("the models differ {}: {}", when,
                    difference(unpacked(0, all[0]), unpacked(static_cast<int>(rank), all[rank]))));
  }
}

void agree_on_values(Membership& group, const std::vector<std::string>& names,
                     const std::vector<std::uint64_t>& hashes, const std::string& operation) {
  std::string mine(hashes.size() * sizeof(std::uint64_t), '\0');
  std::memcpy(mine.data(), hashes.data(), mine.size());
  const auto all = group.all_gather("hashes after the " + operation, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (all[rank].compare(i * 8, 8, all[0], i * 8, 8) != 0)
        throw ConfigError(fmt::format("after the {}: '{}' on rank {} differs from rank 0",
                                      operation, names[i], rank));
}

}  // namespace thinwire
