// SPDX-License-Identifier: Apache-2.0
// Plans as JSON, both ways. Fields that have their default may be left out of a file written by
// hand.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/plan_tree.h"
#include "thinwire/plan/tensor_json.h"

namespace thinwire {
namespace {

Json when_to_json(const When& when) {
  return {{"phase", to_string(when.phase)},
          {"every", when.every},
          {"offset", when.offset},
          {"lag", when.lag}};
}

Json exchange_to_json(const Exchange& e) {
  return {{"id", e.id},
          {"what", to_string(e.what)},
          {"bucket", e.bucket},
          {"group", e.group},
          {"pattern", to_string(e.pattern)},
          {"combine", to_string(e.combine)},
          {"form", to_string(e.form)},
          {"start", when_to_json(e.start)},
          {"need", when_to_json(e.need)},
          {"payload_bytes", e.payload},
          {"algorithm", e.algorithm},
          {"chunk_bytes", e.chunk},
          {"priority", e.priority}};
}

Json halo_to_json(const HaloMap& halo) {
  Json send = Json::array();
  for (const auto& peer : halo.send) {
    Json rows = Json::array();
    for (const auto& row : peer)
      rows.push_back({{"row", row.row}, {"item", row.item}, {"weight", row.weight}});
    send.push_back(std::move(rows));
  }
  return {{"send", send}, {"recv", halo.recv}};
}

Json schedule_to_json(const std::vector<Op>& ops) {
  Json out = Json::array();
  for (const auto& op : ops)
    out.push_back({{"kind", to_string(op.kind)},
                   {"index", op.index},
                   {"microbatch", op.microbatch},
                   {"after", op.after}});
  return out;
}

/// The member `key` as a word of the enumeration T, whose words are `name`(0), `name`(1), ... up to
/// `last`.
template <class T>
T word(const Json& json, const char* key, T fallback, T last, const std::string& place) {
  if (!json.contains(key)) return fallback;
  const auto text = get<std::string>(json, key, place);
  std::vector<std::string> valid;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    valid.emplace_back(to_string(static_cast<T>(i)));
    if (valid.back() == text) return static_cast<T>(i);
  }
  throw DataError(place + ": " + unknown_name(key, text, valid));
}

When when_from_json(const Json& json, const char* key, When fallback, const std::string& exchange) {
  if (!json.contains(key)) return fallback;
  const std::string place = fmt::format("{}: {}", exchange, key);
  const Json& item = json.at(key);
  known_keys(item, {"phase", "every", "offset", "lag"}, place);
  return {.phase = word(item, "phase", fallback.phase, Phase::update_end, place),
          .every = get_or(item, "every", 1, place),
          .offset = get_or(item, "offset", 0, place),
          .lag = get_or(item, "lag", 0, place)};
}

Exchange exchange_from_json(const Json& json, int position, std::string_view source) {
  const std::string place = fmt::format("{}: exchange {}", source, position);
  known_keys(json,
             {"id", "what", "bucket", "group", "pattern", "combine", "form", "start", "need",
              "payload_bytes", "algorithm", "chunk_bytes", "priority"},
             place);
  Exchange out{.id = get_or(json, "id", position, place),
               .what = word(json, "what", Role::gradient, Role::statistic, place),
               .bucket = get<int>(json, "bucket", place),
               .group = get_or(json, "group", 0, place),
               .pattern = word(json, "pattern", Pattern::all_reduce, Pattern::stash, place),
               .combine = word(json, "combine", Combine::mean, Combine::replace, place)};
  if (const auto form = get_or<std::string>(json, "form", "", place); !form.empty()) {
    try {
      out.form = parse_chain(form);
    } catch (const ConfigError& error) {
      throw DataError(fmt::format("{}: form {}", place, error.what()));
    }
  }
  out.start = when_from_json(json, "start", {.phase = Phase::grad_ready}, place);
  out.need = when_from_json(json, "need", {.phase = Phase::update_begin}, place);
  out.payload = get_or<Bytes>(json, "payload_bytes", 0, place);
  out.algorithm = get_or<std::string>(json, "algorithm", "", place);
  out.chunk = get_or<Bytes>(json, "chunk_bytes", 0, place);
  out.priority = get_or(json, "priority", 0, place);
  return out;
}

Bucket bucket_from_json(const Json& json, const std::string& place) {
  Bucket out;
  if (!json.is_array()) throw DataError(place + ": a list of [tensor, begin, end] was expected");
  for (const auto& item : json) {
    const Json wrapped{{"slice", item}};
    const auto numbers = get<std::vector<std::int64_t>>(wrapped, "slice", place);
    if (numbers.size() != 3 || !std::in_range<int>(numbers[0]))
      throw DataError(place + ": a slice is [tensor, begin, end], found " + item.dump());
    out.slices.push_back({static_cast<int>(numbers[0]), numbers[1], numbers[2]});
  }
  return out;
}

Group group_from_json(const Json& json, const std::string& place) {
  known_keys(json, {"ranks", "topology"}, place);
  Group out{.ranks = get<std::vector<Rank>>(json, "ranks", place)};
  try {
    out.topology = parse_spec(get_or<std::string>(json, "topology", "all", place));
  } catch (const ConfigError& error) {
    throw DataError(fmt::format("{}: topology {}", place, error.what()));
  }
  return out;
}

std::vector<Op> ops_from_json(const Json& json, const std::string& place) {
  std::vector<Op> out;
  if (!json.is_array()) throw DataError(place + ": a list was expected");
  for (const auto& item : json) {
    known_keys(item, {"kind", "index", "microbatch", "after"}, place);
    out.push_back({.kind = word(item, "kind", OpKind::forward, OpKind::exchange, place),
                   .index = get<int>(item, "index", place),
                   .microbatch = get_or(item, "microbatch", 0, place),
                   .after = get_or<std::vector<int>>(item, "after", {}, place)});
  }
  return out;
}

HaloMap halo_from_json(const Json& json, const std::string& place) {
  known_keys(json, {"send", "recv"}, place);
  HaloMap out;
  for (const auto& peer : get<Json::array_t>(json, "send", place)) {
    auto& rows = out.send.emplace_back();
    if (!peer.is_array()) throw DataError(place + ": a list of rows for each peer was expected");
    for (const auto& row : peer) {
      known_keys(row, {"row", "item", "weight"}, place);
      rows.push_back({get<std::int64_t>(row, "row", place), get<std::int64_t>(row, "item", place),
                      get_or<float>(row, "weight", 1, place)});
    }
  }
  out.recv = get<std::vector<std::vector<std::int64_t>>>(json, "recv", place);
  return out;
}

/// Calls read(element, place) for each element of the list `key`, which may be missing.
template <class Read>
void each(const Json& json, const char* key, const char* one, std::string_view source, Read read) {
  int position = 0;
  for (const auto& item : get_or<Json::array_t>(json, key, {}, source))
    read(item, fmt::format("{}: {} {}", source, one, position++));
}

}  // namespace

Json plan_tree(const Plan& plan) {
  Json tree{{"thinwire_plan", 1}};
  for (const auto* key :
       {"tensors", "grouping", "groups", "exchanges", "schedule", "shards", "halos"})
    tree[key] = Json::array();
  for (const auto& tensor : plan.tensors) tree["tensors"].push_back(tensor_to_json(tensor));
  for (const auto& bucket : plan.grouping) {
    Json slices = Json::array();
    for (const auto& s : bucket.slices) slices.push_back(Json::array({s.tensor, s.begin, s.end}));
    tree["grouping"].push_back(std::move(slices));
  }
  for (const auto& group : plan.groups)
    tree["groups"].push_back({{"ranks", group.ranks}, {"topology", to_string(group.topology)}});
  for (const auto& exchange : plan.exchanges)
    tree["exchanges"].push_back(exchange_to_json(exchange));
  for (const auto& ops : plan.schedule) tree["schedule"].push_back(schedule_to_json(ops));
  for (const auto& shard : plan.shards) tree["shards"].push_back({{"owner", shard.owner}});
  for (const auto& halo : plan.halos) tree["halos"].push_back(halo_to_json(halo));
  return tree;
}

std::string to_json(const Plan& plan) { return dump_lines(plan_tree(plan), "plan"); }

Plan plan_from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  known_keys(json,
             {"thinwire_plan", "note", "tensors", "grouping", "groups", "exchanges", "schedule",
              "shards", "halos"},
             source);
  if (const int version = get<int>(json, "thinwire_plan", source); version != 1)
    throw DataError(fmt::format("{}: thinwire_plan must be 1, got {}", source, version));
  Plan out;
  each(json, "tensors", "tensor", source, [&](const Json& item, const std::string& place) {
    known_keys(item, {"name", "dtype", "shape"}, place);
    out.tensors.push_back(tensor_from_json(item, place));
  });
  each(json, "grouping", "bucket", source, [&](const Json& item, const std::string& place) {
    out.grouping.push_back(bucket_from_json(item, place));
  });
  each(json, "groups", "group", source, [&](const Json& item, const std::string& place) {
    out.groups.push_back(group_from_json(item, place));
  });
  each(json, "exchanges", "exchange", source, [&](const Json& item, const std::string&) {
    out.exchanges.push_back(
        exchange_from_json(item, static_cast<int>(out.exchanges.size()), source));
  });
  each(json, "schedule", "schedule of rank", source,
       [&](const Json& item, const std::string& place) {
         out.schedule.push_back(ops_from_json(item, place));
       });
  each(json, "shards", "shard map", source, [&](const Json& item, const std::string& place) {
    known_keys(item, {"owner"}, place);
    out.shards.push_back({get<std::vector<std::int32_t>>(item, "owner", place)});
  });
  each(json, "halos", "halo map", source, [&](const Json& item, const std::string& place) {
    out.halos.push_back(halo_from_json(item, place));
  });
  return out;
}

}  // namespace thinwire
