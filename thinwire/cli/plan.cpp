// SPDX-License-Identifier: Apache-2.0
// thinwire plan: predicts the step time of every grouping, writes the plan of one, checks a plan
// file, or finds a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thinwire/cli/plan.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/payload.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/planners.h"

namespace thinwire::cli {
namespace {

struct Row {
  std::string grouping;
  std::size_t messages = 0;
  Bytes largest_bytes = 0;
  Seconds step_s = 0;
};

Row predict(const Spec& spec, const GroupInput& input) {
  const Grouped grouped = make_grouped(spec, input);
  Row row{.grouping = to_string(spec), .messages = grouped.grouping.size()};
  for (const auto& bucket : grouped.grouping)
    row.largest_bytes =
        std::max(row.largest_bytes, static_cast<Bytes>(payload_bytes(bucket, input)));
  row.step_s = predict_step_s(grouped, input);
  return row;
}

/// The chosen grouping, and all others with their default options beside it.
std::vector<Row> predict_all(const Spec& chosen, const GroupInput& input) {
  std::vector<Row> rows{predict(chosen, input)};
  for (const auto& name : groupings().names())
    if (name != to_string(chosen)) rows.push_back(predict({.name = name}, input));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.step_s < b.step_s; });
  return rows;
}

void print_rows(const std::vector<Row>& rows, const std::string& chosen, Seconds compute_s) {
  std::size_t width = 8;
  for (const auto& row : rows) width = std::max(width, row.grouping.size());
  fmt::print("  {:<{}}  {:>8}  {:>9}  {:>19}  {:>22}\n", "grouping", width, "messages", "largest",
             "predicted step (ms)", "predicted exposed (ms)");
  for (const auto& row : rows)
    fmt::print("{} {:<{}}  {:>8}  {:>9}  {:>19.3f}  {:>22.3f}\n",
               row.grouping == chosen ? '*' : ' ', row.grouping, width, row.messages,
               format_bytes(row.largest_bytes), row.step_s * 1e3, (row.step_s - compute_s) * 1e3);
}

Json rows_json(const std::vector<Row>& rows, Seconds compute_s) {
  Json out = Json::array();
  for (const auto& row : rows)
    out.push_back({{"grouping", row.grouping},
                   {"messages", row.messages},
                   {"largest_bytes", row.largest_bytes},
                   {"predicted_step_s", row.step_s},
                   {"predicted_exposed_s", row.step_s - compute_s}});
  return out;
}

void check_memories(const std::vector<Spec>& form) {
  const auto& names = memory_names();
  for (std::size_t i = 0; i + 1 < form.size(); ++i)
    if (std::find(names.begin(), names.end(), form[i].name) == names.end())
      throw ConfigError(unknown_name("memory", form[i].name, names));
}

/// Memories stay at home: what travels is what the codec makes.
std::vector<Spec> read_form(const std::string& text) {
  auto form = parse_chain(text);
  check_memories(form);
  payloads().find(form.back().name);
  if (!payload_bytes(form, {}))
    throw UnsupportedError(fmt::format(
        "plan: how many bytes '{}' makes of a tensor is not known before a run", form.back().name));
  return form;
}

/// What the form makes of a tensor by itself, and why: a codec sends it dense where that is no
/// longer.
struct TensorRow {
  const TensorDesc* tensor;
  Bytes bytes, dense;
  std::string reason(const Spec& codec) const {
    if (bytes < dense)
      return fmt::format("{} makes {} bytes of {}", to_string(codec), bytes, dense);
    return fmt::format("dense in {} bytes: {} would be no shorter", dense, to_string(codec));
  }
};

std::vector<TensorRow> tensor_rows(const std::vector<TensorDesc>& tensors,
                                   const std::vector<Spec>& form) {
  std::vector<TensorRow> rows;
  for (const TensorDesc& tensor : tensors)
    rows.push_back(
        {&tensor, payload_bytes(form, std::span(&tensor, 1)).value_or(0), dense_bytes(tensor)});
  return rows;
}

void print_dense(const std::vector<TensorRow>& rows, const Spec& codec) {
  constexpr int kMost = 8;
  int more = 0;
  for (const TensorRow& row : rows) {
    if (row.bytes < row.dense || row.dense == 0) continue;
    if (++more <= kMost) fmt::print("  '{}': {}\n", row.tensor->name, row.reason(codec));
  }
  if (more > kMost) fmt::print("  and {} tensors more\n", more - kMost);
}

int make_plan(const PlanOptions& options) {
  if (options.from.profile.empty() || options.from.cluster.empty())
    throw ConfigError(
        "plan: --profile and --cluster are needed, or --check with --ranks or --cluster");
  if (!options.target.empty()) return plan_for_ddp(options);
  if (options.searches()) return search_plan(options);
  const auto form = read_form(options.form);
  const Spec chosen = parse_spec(options.grouping);
  const Profile profile = options.from.read_profile();
  const Cluster cluster = options.from.read_cluster();
  GroupInput input{.profile = profile, .cluster = cluster};
  const bool dense = form.back().name == "none";
  if (form.size() > 1 || !dense)
    input.payload = [&](const Bucket& bucket) {
      return *payload_bytes(form, tensors_of(bucket, profile.params));
    };
  const int ranks = world_size(cluster);
  const auto rows = predict_all(chosen, input);
  const auto ready = slowest_ready_times(input);
  const Seconds compute_s = *std::max_element(ready.begin(), ready.end());
  const Grouped grouped = make_grouped(chosen, input);
  const Plan plan =
      data_parallel_plan(profile.params, grouped.grouping, ranks, form, grouped.every);
  validate(plan, cluster);
  if (grouped.frozen && !options.out.empty())
    throw ConfigError(
        "plan: a plan file cannot say skipped=frozen; give the grouping to the run instead");
  double sent = 0;  // in a step, in the mean
  for (const auto& exchange : plan.exchanges)
    sent += static_cast<double>(exchange.payload) / exchange.start.every;
  const auto total = static_cast<Bytes>(std::llround(sent));
  if (!options.out.empty()) write_text(options.out, to_json(plan));
  if (options.json) {
    Json out{{"profile", options.from.profile},
             {"cluster", options.from.cluster},
             {"ranks", ranks},
             {"grouping", to_string(chosen)},
             {"form", options.form},
             {"payload_bytes", total},
             {"compute_s", compute_s},
             {"groupings", rows_json(rows, compute_s)},
             {"digest", fmt::format("{:016x}", digest(plan))}};
    if (!options.out.empty()) out["out"] = options.out;
    for (const TensorRow& row : tensor_rows(profile.params, form))
      if (!dense)
        out["tensors"].push_back({{"name", row.tensor->name},
                                  {"payload_bytes", row.bytes},
                                  {"dense_bytes", row.dense},
                                  {"reason", row.reason(form.back())}});
    fmt::print("{}\n", dump(out, "plan"));
    return kOk;
  }
  fmt::print("{} tensors, {} a rank and step, {} ranks, compute {}\n", profile.params.size(),
             format_bytes(total), ranks, format_seconds(compute_s));
  print_rows(rows, to_string(chosen), compute_s);
  if (!dense) print_dense(tensor_rows(profile.params, form), form.back());
  if (options.out.empty())
    fmt::print("'--out plan.json' writes the plan of the grouping marked *\n");
  else
    fmt::print("wrote {}: {} exchanges\n", options.out, plan.exchanges.size());
  return kOk;
}

int check_plan(const PlanOptions& options) {
  if (options.searches() || options.from.changes() || !options.target.empty())
    throw ConfigError(
        "plan: --check looks at a plan and searches for none; leave out --quality, "
        "--forms, --max-bytes-per-step, --explain, --for, --rate and --latency");
  if (options.from.ranks < 1 && options.from.cluster.empty())
    throw ConfigError("plan: --check needs --ranks (at least 1) or --cluster");
  const Plan plan =
      load(options.check, [](auto text, auto path) { return plan_from_json(text, path); });
  int ranks = options.from.ranks;
  if (ranks < 1) ranks = world_size(options.from.read_cluster());
  validate(plan, ranks);
  for (const Exchange& exchange : plan.exchanges) check_memories(exchange.form);
  if (options.json)
    fmt::print("{}\n", dump({{"check", options.check},
                             {"valid", true},
                             {"ranks", ranks},
                             {"exchanges", plan.exchanges.size()},
                             {"digest", fmt::format("{:016x}", digest(plan))}},
                            "plan"));
  else
    fmt::print("{}: valid for {} ranks, {} exchanges, digest {:016x}\n", options.check, ranks,
               plan.exchanges.size(), digest(plan));
  return kOk;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = add_verb(
      app, chosen, "plan", "Predict step times; find, write or check a plan",
      "thinwire plan --profile tests/plan/profiles/resnet18.json \\\n"
      "    --cluster tests/plan/profiles/cluster_2_ranks_1gbit.json --out plan.json\n"
      "  thinwire plan --profile tests/plan/profiles/mlp.json --quality free \\\n"
      "    --cluster tests/plan/profiles/cluster_2_ranks_1gbit.json --rate 100mbit\n"
      "  thinwire plan --check plan.json --ranks 2",
      [options] { return options->check.empty() ? make_plan(*options) : check_plan(*options); });
  add_measurements(*verb, options->from);
  verb->add_option("--grouping", options->grouping,
                   "Which tensors travel together: see 'thinwire list grouping'")
      ->capture_default_str();
  verb->add_option("--form", options->form, "In which form they travel")->capture_default_str();
  verb->add_option("--out", options->out, "Write the plan to this file (JSON)");
  verb->add_option("--check", options->check, "Check this plan file instead of making one");
  verb->add_option("--quality", options->quality,
                   "Find the plan with the shortest step: 'same' mathematics, 'bounded' loss of at "
                   "most half a point, or 'free'");
  verb->add_option("--forms", options->forms, "Forms to search among, in place of the quality's")
      ->delimiter(';');
  verb->add_option("--max-bytes-per-step", options->max_bytes,
                   "The most that a rank may send in a step, in the mean: 2MB");
  verb->add_option("--for", options->target,
                   "ddp: which bucket_cap_mb and hook PyTorch's own wrapper should have");
  verb->add_flag("--explain", options->explain, "Search, and say why");
  verb->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace thinwire::cli
