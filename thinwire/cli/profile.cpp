// SPDX-License-Identifier: Apache-2.0
// thinwire profile: measures a model and the network between the ranks, for thinwire plan.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "thinwire/cli/ranks.h"
#include "thinwire/cli/tool.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/core/text.h"
#include "thinwire/train/auto_plan.h"
#include "thinwire/train/data.h"
#include "thinwire/train/job.h"
#include "thinwire/train/python_model.h"

namespace thinwire::cli {
namespace {

struct ProfileOptions {
  std::vector<std::string> words;
  std::string out = ".", quality = "free";
  bool json = false;
  RankOptions ranks;
};

Json links_json(const MeasuredTraining& measured) {
  Json out = Json::object();
  for (const auto& [name, levels] : measured.cluster.links)
    out[name] = {{"latency_s", levels[0].latency_s},
                 {"bytes_per_s", levels[0].bytes_per_s},
                 {"cpu_s_per_byte", levels[0].cpu_s_per_byte},
                 {"residual", measured.residual.at(name)}};
  return out;
}

void print(const MeasuredTraining& measured, const std::string& profile, const std::string& cluster,
           bool json) {
  const auto sum = [](const std::vector<Seconds>& times) {
    return std::accumulate(times.begin(), times.end(), 0.0);
  };
  const Profile& model = measured.profile;
  const Seconds forward = sum(model.forward_s), backward = sum(model.backward_s);
  if (json) {
    Json out{{"profile", profile},
             {"cluster", cluster},
             {"ranks", world_size(measured.cluster)},
             {"tensors", model.params.size()},
             {"forward_s", forward},
             {"backward_s", backward},
             {"update_s", model.update_s},
             {"speed", measured.cluster.speed},
             {"shared_core", measured.cluster.shared_core},
             {"links", links_json(measured)}};
    fmt::print("{}\n", dump(out, "profile"));
    return;
  }
  fmt::print("{} tensors: forward {}, backward {}, update {}\n", model.params.size(),
             format_seconds(forward), format_seconds(backward), format_seconds(model.update_s));
  const auto [slowest, fastest] =
      std::minmax_element(measured.cluster.speed.begin(), measured.cluster.speed.end());
  fmt::print("{} ranks, the slowest at {:.0f} % of the quickest{}\n", world_size(measured.cluster),
             100 * *slowest / *fastest,
             measured.cluster.shared_core ? "; communication shares their cores" : "");
  for (const auto& [name, levels] : measured.cluster.links)
    fmt::print(
        "  {:<10}  {:>9} and {:>12}, {} of a core a GB; the line is {:.0f} % off its points\n",
        name, format_seconds(levels[0].latency_s), format_rate(levels[0].bytes_per_s),
        format_seconds(1e9 * levels[0].cpu_s_per_byte), 100 * measured.residual.at(name));
  for (const auto& [form, speed] : model.codecs)
    fmt::print("  {:<22}  encodes {:>9}/s, decodes {:>9}/s\n", form,
               format_bytes(static_cast<Bytes>(speed.encode_bytes_per_s)),
               format_bytes(static_cast<Bytes>(speed.decode_bytes_per_s)));
  fmt::print("wrote {} and {}\nnext: {} plan --profile {} --cluster {} --quality bounded\n",
             profile, cluster, program_called(), profile, cluster);
}

int run_profile(const ProfileOptions& options) {
  TrainConfig config;
  read_words(config, options.words);
  config.model = model_spec(config.model);
  config.plan = "auto";
  config.quality = options.quality;
  apply(options.ranks, config);
  validate(config);
  check_names(config);
  return on_ranks(config, options.ranks, [&](Comm* comm) {
    if (comm == nullptr)
      throw ConfigError("profile: at least 2 ranks are needed, got 1; try --ranks 2");
    std::vector<std::string> notices;
    const Dataset data = load_dataset(parse_spec(config.data), notices);
    const MeasuredTraining measured =
        measure_training(config, data, *comm, forms_to_consider(config), true);
    if (comm->rank() != 0) return kOk;
    std::error_code error;
    std::filesystem::create_directories(options.out, error);
    const std::string profile = (std::filesystem::path(options.out) / "profile.json").string(),
                      cluster = (std::filesystem::path(options.out) / "cluster.json").string();
    write_text(profile, to_json(measured.profile));
    write_text(cluster, to_json(measured.cluster));
    print(measured, profile, cluster, options.json);
    return kOk;
  });
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* verb =
      add_verb(app, chosen, "profile", "Measure a model, forms and the network between the ranks",
               "thinwire profile --ranks 2 model=cnn --out measured",
               [options] { return run_profile(*options); });
  verb->add_option("config", options->words, "As for train: a TOML file, then key=value words");
  add_rank_options(*verb, options->ranks);
  verb->add_option("--out", options->out, "Folder for profile.json and cluster.json")
      ->capture_default_str();
  verb->add_option("--quality", options->quality,
                   "Which forms are timed: those of same, bounded or free")
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace thinwire::cli
