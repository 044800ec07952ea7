// SPDX-License-Identifier: Apache-2.0
// thinwire plan --for ddp: for people who keep PyTorch's DistributedDataParallel, the bucket size
// and hook with the shortest simulated step, and the lines that set them.
#include <fmt/format.h>

#include <array>

#include "thinwire/cli/plan.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/search.h"

namespace thinwire::cli {
namespace {

constexpr std::array kCaps{1, 2, 5, 10, 25, 50, 100, 1000};  // MiB

/// Hooks that PyTorch has on a CPU over Gloo, by the forms that do the same. Its PowerSGD hook is
/// not among them: with several buckets it ends in an error there.
std::vector<std::string> forms_of_hooks(Quality quality) {
  std::vector<std::string> out{"none"};
  if (quality != Quality::same) out.emplace_back("cast{f16}");
  return out;
}

std::string grouping_of(int mib) { return fmt::format("ddp{{bytes={}MiB}}", mib); }

int cap_of(const std::string& grouping) {
  for (const int mib : kCaps)
    if (grouping == to_string(parse_spec(grouping_of(mib)))) return mib;
  return 25;
}

std::string lines_for(const Considered& chosen) {
  std::string out = fmt::format("ddp = DistributedDataParallel(model, bucket_cap_mb={})\n",
                                cap_of(chosen.grouping));
  if (chosen.form == "cast{f16}")
    out +=
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)\n";
  return out;
}

}  // namespace

int plan_for_ddp(const PlanOptions& options) {
  if (options.target != "ddp")
    throw ConfigError(fmt::format("plan: --for must be ddp, got '{}'", options.target));
  if (!options.out.empty() || !options.forms.empty() || !options.max_bytes.empty())
    throw ConfigError(
        "plan: --for ddp writes no plan and knows DDP's own hooks; leave out --out, "
        "--forms and --max-bytes-per-step");
  const Profile profile = options.from.read_profile();
  const Cluster cluster = options.from.read_cluster();
  const Quality quality = options.quality.empty() ? Quality::same : parse_quality(options.quality);
  SearchOptions asked{.forms = forms_of_hooks(quality)};
  for (const int mib : kCaps) asked.groupings.push_back(grouping_of(mib));
  asked.mixes = false;  // DDP has one hook for all buckets
  const Choice choice = search(profile, cluster, asked);
  const Seconds usual = steady_step_s(
      data_parallel_plan(
          profile.params,
          make_grouping(parse_spec(grouping_of(25)), {.profile = profile, .cluster = cluster}),
          world_size(cluster), {{.name = "none"}}),
      profile, cluster);
  if (options.json) {
    Json out = to_json(choice);
    out["for"] = "ddp";
    out["bucket_cap_mb"] = cap_of(choice.chosen.grouping);
    out["hook"] = choice.chosen.form == "none" ? Json() : Json("fp16_compress_hook");
    out["default_predicted_step_s"] = usual;
    fmt::print("{}\n", dump(out, "plan"));
    return kOk;
  }
  fmt::print("{}{}", explain(choice), lines_for(choice.chosen));
  fmt::print(
      "DDP as it comes (25 MiB, no hook): {}, {:.2f} times as long. Gloo is taken to be as quick "
      "as the measured transport.\n",
      format_seconds(usual), usual / choice.chosen.step_s);
  return kOk;
}

}  // namespace thinwire::cli
