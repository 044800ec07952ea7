// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/auto_plan.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/exchange/form_speed.h"
#include "thinwire/train/evaluation.h"
#include "thinwire/train/loader.h"
#include "thinwire/train/models.h"
#include "thinwire/train/profiler.h"
#include "thinwire/train/speed_cache.h"
#include "thinwire/train/team.h"
#include "thinwire/train/torch_build.h"
#include "thinwire/train/trainer.h"

namespace thinwire {
namespace {

constexpr Bytes kLargest = 16 << 20;  // larger messages are no quicker a byte

/// Random numbers go on afterwards where they stood.
class SameRandomNumbers {
 public:
  SameRandomNumbers() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~SameRandomNumbers() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  SameRandomNumbers(const SameRandomNumbers&) = delete;
  SameRandomNumbers& operator=(const SameRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

Profile profile_alone(const TrainConfig& config, const Dataset& data, Comm& world) {
  const SameRandomNumbers same;
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const auto model = make_model(parse_spec(config.model), form_of(data), seed);
  Trainer alone(model, parse_spec(config.optimizer), cross_entropy(config.label_smoothing), nullptr,
                {.clip_norm = config.clip_norm});
  Loader loader(data, data.train,
                {.batch_size = config.batch_size,
                 .rank = world.rank(),
                 .ranks = world.size(),
                 .seed = seed,
                 .threads = 0});
  const StepInput input = tensors_of(data, loader.at(0), world.size());
  world.barrier("profile");
  // All at once, as in training: ranks of one host share its memory.
  return profile_model(alone.parameters(), [&] { alone.step(input, 0); });
}

Seconds whole_step_s(const Profile& profile) {
  return std::accumulate(profile.forward_s.begin(), profile.forward_s.end(), 0.0) +
         std::accumulate(profile.backward_s.begin(), profile.backward_s.end(), 0.0) +
         profile.update_s;
}

/// Whether the ranks of some host have fewer cores than computation and communication need.
/// Collective.
bool shares_cores(Team& team) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  Json mine = Json::array();
  for (int core = 0; known && core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &cores)) mine.push_back(core);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::map<std::string, std::pair<std::set<int>, int>> hosts;  // cores of all its ranks; how many
  for (const std::string& text :
       team.texts("cores", Json{{"host", host}, {"cores", mine}}.dump())) {
    const Json one = parse_json(text, "a rank's cores");
    auto& [all, ranks] = hosts[one.at("host").get<std::string>()];
    for (const int core : one.at("cores").get<std::vector<int>>()) all.insert(core);
    ++ranks;
  }
  const auto needed = compute_threads() + 1;
  return std::any_of(hosts.begin(), hosts.end(), [&](const auto& host_and) {
    const auto& [all, ranks] = host_and.second;
    return static_cast<std::int64_t>(all.size()) < needed * ranks;
  });
}

/// `anew`: also what this machine is known for.
void time_forms(Profile& profile, const std::vector<std::string>& forms, int ranks, bool anew) {
  // A bucket as large ones are, a matrix of single precision: what fits the cache is quicker.
  double elements = 0;
  for (const TensorDesc& tensor : profile.params)
    elements += static_cast<double>(thinwire::elements(tensor));
  constexpr double kLeast = 64, kMost = 2048;
  const auto side = static_cast<std::int64_t>(std::clamp(std::sqrt(elements / 2), kLeast, kMost));
  const TensorDesc matrix{"matrix", DType::f32, {side, side}};
  const SpeedCache cache;
  const std::int64_t today = days_since_1970();
  for (const std::string& text : forms) {
    const auto form = parse_chain(text);
    if (form.size() == 1 && form[0].name == "none") continue;
    const std::string name = to_string(std::span<const Spec>(form)),
                      key = speed_key(name, side, ranks);
    if (const auto known = anew ? std::nullopt : cache.find(key, today)) {
      profile.codecs[name] = *known;
      continue;
    }
    try {
      profile.codecs[name] = form_speed(form, std::span(&matrix, 1), ranks);
      cache.add(key, profile.codecs[name], today);
    } catch (const std::exception&) {
      // The search says that its speed is not known. Rank 0 is alone here: it must come back.
      continue;
    }
  }
}

bool has_momentum(const TrainConfig& config) {
  const Spec optimizer = parse_spec(config.optimizer);
  return optimizer.name != "sgd" || SpecReader(optimizer).number("momentum", 0.9) > 0;
}

}  // namespace

std::vector<std::string> forms_to_consider(const TrainConfig& config) {
  if (config.forms.empty()) return forms_of(parse_quality(config.quality), has_momentum(config));
  auto forms = split(config.forms, ';');
  if (std::find(forms.begin(), forms.end(), "none") == forms.end())
    forms.insert(forms.begin(), "none");
  return forms;
}

MeasuredTraining measure_training(const TrainConfig& config, const Dataset& data, Comm& world,
                                  const std::vector<std::string>& forms, bool anew) {
  if (const auto batch = std::min(config.batch_size, data.train.count); batch < world.size())
    throw ConfigError(fmt::format(
        "plan=auto measures a sample on every rank at least: the first batch has {} for {} ranks",
        batch, world.size()));
  return measure_beside(profile_alone(config, data, world), world, forms, anew);
}

MeasuredCluster measure_links(const Profile& profile, Comm& world) {
  Bytes total = 0;
  for (const TensorDesc& tensor : profile.params) total += dense_bytes(tensor);
  return measure_cluster(world, std::min(total, kLargest));
}

MeasuredTraining measure_beside(const Profile& own, Comm& world,
                                const std::vector<std::string>& forms, bool anew) {
  Team team(&world);
  MeasuredTraining out;
  const auto all = team.texts("profile", to_json(own));
  out.profile = profile_from_json(all.front(), "rank 0's profile");
  MeasuredCluster network = measure_links(out.profile, world);
  out.cluster = std::move(network.cluster);
  out.residual = std::move(network.residual);
  const Seconds first = whole_step_s(out.profile);
  for (const std::string& text : all)
    out.cluster.speed.push_back(first / whole_step_s(profile_from_json(text, "a rank's profile")));
  out.cluster.shared_core = shares_cores(team);
  if (world.rank() == 0) time_forms(out.profile, forms, world.size(), anew);
  return out;
}

AutoPlan choose_plan(const TrainConfig& config, const Dataset& data, Comm& world) {
  AutoPlan out;
  const auto forms = forms_to_consider(config);
  out.measured = measure_training(config, data, world, forms);
  out.choice = choose(out.measured, forms, world);
  return out;
}

Choice choose(const MeasuredTraining& measured, const std::vector<std::string>& forms,
              Comm& world) {
  Team team(&world);
  Choice choice;
  // Rank 0 plans; what it cannot do ends the run on all.
  Json said = Json::object();
  if (world.rank() == 0) {
    try {
      choice = search(measured.profile, measured.cluster, {.forms = forms});
      said = {{"plan", to_json(choice.plan)},
              {"verdict", choice.verdict},
              {"step_s", choice.chosen.step_s}};
    } catch (const std::exception& error) {
      said = {{"error", error.what()}};
    }
  }
  said = parse_json(team.from_first("plan", said.dump()), "rank 0's plan");
  if (said.contains("error")) throw ConfigError(said.at("error").get<std::string>());
  if (world.rank() != 0) {
    choice.plan = plan_from_json(said.at("plan").get<std::string>(), "rank 0's plan");
    choice.verdict = said.at("verdict").get<std::string>();
    choice.chosen.step_s = said.at("step_s").get<Seconds>();
  }
  return choice;
}

}  // namespace thinwire
