// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/plan.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "thinwire/core/rng.h"
#include "thinwire/plan/plan_builder.h"
#include "thinwire/plan/plan_tree.h"

namespace thinwire {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kOne{
    {{"tensors", "tensor"},
     {"grouping", "bucket"},
     {"groups", "group"},
     {"exchanges", "exchange"},
     {"schedule", "schedule of rank"},
     {"shards", "shard map"},
     {"halos", "halo map"}}};

std::string shown(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : dump(value, "plan");
  if (text.empty()) return "(none)";
  constexpr std::size_t kMost = 120;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

/// Goes down to the first value that differs; `path` collects the words on the way.
std::string walk(const Json& a, const Json& b, const std::string& path) {
  if (a == b) return "";
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      if (auto words = walk(value, b.at(key), path.empty() ? key : path + " " + key);
          !words.empty())
        return words;
  }
  return fmt::format("{} {} against {}", path, shown(a), shown(b));
}

std::string list_difference(const Json& a, const Json& b, std::string_view list,
                            std::string_view one) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    const bool named = a[i].is_object() && a[i].contains("name") && a[i]["name"] == b[i]["name"];
    const std::string name = named ? fmt::format(" ('{}')", shown(a[i]["name"])) : "";
    return walk(a[i], b[i], fmt::format("{} {}{}:", one, i, name));
  }
  if (a.size() == b.size()) return "";
  return fmt::format("{} {} against {}", a.size(), list, b.size());
}

}  // namespace

std::uint64_t digest(const Plan& plan) {
  const std::string text = dump(plan_tree(plan), "plan");
  return hash_bytes(text.data(), static_cast<std::int64_t>(text.size()));
}

std::string first_difference(const Plan& a, const Plan& b) {
  const Json left = plan_tree(a), right = plan_tree(b);
  for (const auto& [list, one] : kOne)
    if (auto words = list_difference(left[list], right[list], list, one); !words.empty())
      return words;
  return "";
}

Plan data_parallel_plan(std::vector<TensorDesc> tensors, Grouping grouping, int ranks,
                        const std::vector<Spec>& form, int every) {
  PlanBuilder builder({.tensors = std::move(tensors),
                       .grouping = std::move(grouping),
                       .ranks = ranks,
                       .form = form,
                       .every = every});
  declare_gradient_mean(builder);
  return builder.plan();
}

}  // namespace thinwire
