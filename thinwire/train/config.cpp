// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/config.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "thinwire/comm/comm.h"
#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/text.h"
#include "thinwire/plan/exchange.h"
#include "thinwire/plan/planners.h"
#include "thinwire/sim/search.h"
#include "thinwire/train/data.h"
#include "thinwire/train/schedule.h"

namespace thinwire {
namespace {

constexpr double kMost = 9e15;  // whole numbers up to here are exact in a double
using C = TrainConfig;

std::vector<ConfigOption> make_options() {
  return {
      {"model", "Model", &C::model, 0, 0, "resnet{depth=20}",
       "mlp{sizes}, cnn{width}, resnet{depth}, vgg{depth}, char_transformer{layers,width,heads}; a "
       "class of a Python file through python -m thinwire train --model net.py:Net"},
      {"data", "Data", &C::data, 0, 0, "synthetic{shape=1x28x28,classes=10}",
       "fashion_mnist{folder}, idx{images,labels,test_images,test_labels}, cifar10{folder}, "
       "text{path,context}, synthetic{shape,classes,train,test,noise} or "
       "synthetic{text=true,classes,context}"},
      {"augment", "Data", &C::augment, 0, 0, "crop_flip",
       "none, or crop_flip: shift by up to 4 pixels and mirror training images"},
      {"samples", "Data", &C::samples, 0, kMost, "5000",
       "use only this many training samples; 0: all"},
      {"test_samples", "Data", &C::test_samples, 0, kMost, "1000",
       "use only this many test samples; 0: all"},
      {"loader_threads", "Data", &C::loader_threads, 0, 64, "2",
       "threads a rank that prepare batches ahead; the batches are the same for any number"},
      {"batch_size", "Training", &C::batch_size, 1, 1e9, "256",
       "samples a step of all ranks together"},
      {"epochs", "Training", &C::epochs, 0, 1e9, "10", "passes over the training data"},
      {"steps", "Training", &C::steps, 0, kMost, "200", "end after this many steps; 0: by epochs"},
      {"optimizer", "Training", &C::optimizer, 0, 0, "adamw{weight_decay=0.01}",
       "sgd{momentum,nesterov,weight_decay}, adam{beta1,beta2,eps,weight_decay}, adamw{...}"},
      {"learning_rate", "Training", &C::learning_rate, 0, 1e6, "0.05",
       "the largest one; the schedule scales it"},
      {"schedule", "Training", &C::schedule, 0, 0, "step{every=30,factor=0.1,warmup=1}",
       "constant{warmup}, step{every,factor,warmup}, cosine{floor,warmup}; every and warmup in "
       "epochs"},
      {"clip_norm", "Training", &C::clip_norm, 0, 1e9, "1",
       "largest norm of all gradients together; 0: no clipping"},
      {"label_smoothing", "Training", &C::label_smoothing, 0, 0.999, "0.1",
       "share of the target spread over all classes"},
      {"seed", "Training", &C::seed, 0, kMost, "7",
       "of parameters, order of samples and augmentation"},
      {"ranks", "Ranks", &C::ranks, 1, 4096, "2",
       "processes (threads with comm=local) that train together"},
      {"comm", "Ranks", &C::comm, 0, 0, "local",
       "transport: tcp, local (threads of one process), c10d, mpi, none; decorators in front, as "
       "throttle{rate=100mbit}|tcp; with options as in tcp{algorithm=gather}"},
      {"grouping", "Ranks", &C::grouping, 0, 0, "size_cap{bytes=1MiB}",
       "how gradients are merged into messages: see thinwire list groupings"},
      {"form", "Ranks", &C::form, 0, 0, "ef|topk{ratio=0.01}",
       "what travels: memories, then a codec; see thinwire list"},
      {"algorithm", "Ranks", &C::algorithm, 0, 0, "gather",
       "of gradient exchanges: direct, gather, shard, tree, hierarchical; empty: chosen"},
      {"order", "Ranks", &C::order, 0, 0, "agreed",
       "in which messages start: plan, or agreed: as they become ready on all ranks, for models "
       "whose branches change from step to step"},
      {"plan", "Ranks", &C::plan, 0, 0, "examples/plan/two_buckets.json",
       "in place of grouping, form and algorithm: auto measures for some seconds and chooses; or a "
       "plan file, from thinwire plan or by hand"},
      {"quality", "Ranks", &C::quality, 0, 0, "bounded",
       "choose the plan (as plan=auto), which may change: nothing but messages (same), bounded "
       "loss "
       "(half a point), free"},
      {"forms", "Ranks", &C::forms, 0, 0, "cast{f16};ef|sign",
       "choose the plan (as plan=auto) among these forms, with ; between; empty: those of the "
       "quality"},
      {"replan", "Ranks", &C::replan, 0, 0, "false",
       "with plan=auto: measure the links again, and choose again, where steps take another time "
       "than was predicted"},
      {"interface", "Ranks", &C::interface, 0, 0, "lo",
       "network interface; empty: the one that routes to rank 0"},
      {"timeout_s", "Ranks", &C::timeout_s, 0.1, 1e6, "60", "deadline of every wait for a rank"},
      {"pin", "Ranks", &C::pin, 0, 0, "none",
       "auto: one core a rank where there are enough; none: leave it to the system"},
      {"threads", "Ranks", &C::threads, 0, 4096, "1",
       "compute threads a rank; 0: cores of the machine divided by its ranks"},
      {"eval_every", "Output", &C::eval_every, 0, 1e9, "0.5",
       "epochs between evaluations; 0: only at the end"},
      {"eval_batch_size", "Output", &C::eval_batch_size, 1, 1e9, "500",
       "samples a step of an evaluation on one rank; does not change the result"},
      {"checkpoint_every", "Output", &C::checkpoint_every, 0, 1e9, "2",
       "epochs between checkpoints; 0: only at the end"},
      {"keep", "Output", &C::keep, 1, 1e6, "3", "checkpoints to keep beside the best one"},
      {"log_every", "Output", &C::log_every, 1, kMost, "10", "steps between rows of metrics.jsonl"},
      {"trace_steps", "Output", &C::trace_steps, 0, kMost, "10",
       "steps whose events go to the trace file; 0: none"},
      {"report", "Output", &C::report, 0, 0, "false", "write report.html at the end"},
      {"runs", "Output", &C::runs, 0, 0, "/tmp/thinwire-runs", "folder that gets a folder a run"},
      {"name", "Output", &C::name, 0, 0, "first-try",
       "name of the run's folder; empty: date and model"},
  };
}

double number_of(const ConfigOption& option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw ConfigError(fmt::format("{}: a number was expected, got '{}'", option.key, text));
  if (value < option.least || value > option.most)
    throw ConfigError(fmt::format("{}: must be in [{}, {}], got {}", option.key, option.least,
                                  option.most, text));
  return value;
}

std::int64_t integer_of(const ConfigOption& option, std::string_view text) {
  const double value = number_of(option, text);
  if (value != std::floor(value))
    throw ConfigError(fmt::format("{}: a whole number was expected, got '{}'", option.key, text));
  return static_cast<std::int64_t>(value);
}

bool flag_of(const ConfigOption& option, std::string_view text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  throw ConfigError(fmt::format("{}: must be true or false, got '{}'", option.key, text));
}

const ConfigOption& option_named(std::string_view key) {
  for (const auto& option : train_options())
    if (option.key == key) return option;
  std::vector<std::string> keys;
  for (const auto& option : train_options()) keys.push_back(option.key);
  throw ConfigError(unknown_name("option", key, keys));
}

Json value_of(const ConfigOption& option, const TrainConfig& config) {
  return std::visit([&](auto member) { return Json(config.*member); }, option.member);
}

/// A JSON string is a TOML basic string too; numbers and flags agree as well, but for 1e+300.
std::string toml_value(const ConfigOption& option, const TrainConfig& config) {
  if (const auto* real = std::get_if<double C::*>(&option.member)) {
    const std::string text = fmt::format("{}", config.**real);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  return value_of(option, config).dump();
}

void check_chain(const char* key, const std::string& text) {
  try {
    if (parse_chain(text).empty()) throw ConfigError("a name was expected");
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", key, error.what()));
  }
}

/// The names that need no torch to be looked up, with their options where those need no data.
void check_known(const TrainConfig& config) {
  datasets().find(parse_spec(config.data).name);
  make_schedule(parse_spec(config.schedule), {});
  auto chain = parse_chain(config.comm);
  transports().find(chain.back().name);
  chain.pop_back();
  for (const Spec& decorator : chain) comm_decorators().find(decorator.name);
  make_unmeasured_grouping(parse_spec(config.grouping), {{"w", DType::f32, {1}}}, 2);
  if (const std::string fault = algorithm_fault(config.algorithm); !fault.empty())
    throw ConfigError(fault);
}

}  // namespace

const std::vector<ConfigOption>& train_options() {
  static const std::vector<ConfigOption> options = make_options();
  return options;
}

void set_option(TrainConfig& config, std::string_view key, std::string_view value) {
  const ConfigOption& option = option_named(key);
  std::visit(
      [&]<class T>(T TrainConfig::* member) {
        if constexpr (std::is_same_v<T, std::string>)
          config.*member = std::string(value);
        else if constexpr (std::is_same_v<T, bool>)
          config.*member = flag_of(option, value);
        else if constexpr (std::is_same_v<T, double>)
          config.*member = number_of(option, value);
        else
          config.*member = integer_of(option, value);
      },
      option.member);
}

void set_option(TrainConfig& config, std::string_view assignment) {
  const auto equals = assignment.find('=');
  const auto brace = assignment.find('{');
  if (equals == std::string_view::npos || equals > brace)
    throw ConfigError(fmt::format("key=value was expected, got '{}'", assignment));
  set_option(config, assignment.substr(0, equals), assignment.substr(equals + 1));
}

std::string to_toml(const TrainConfig& config) {
  std::string out, group;
  for (const auto& option : train_options()) {
    if (option.group != group)
      out += fmt::format("{}# {}\n", group.empty() ? "" : "\n", option.group);
    group = option.group;
    out += fmt::format("{} = {}\n", option.key, toml_value(option, config));
  }
  return out;
}

Json to_json(const TrainConfig& config) {
  Json json = Json::object();
  for (const auto& option : train_options()) json[option.key] = value_of(option, config);
  return json;
}

bool chooses_plan(const TrainConfig& config) {
  const bool asks = config.quality != "same" || !config.forms.empty();
  return config.plan == "auto" || (config.plan.empty() && asks);
}

void validate(const TrainConfig& config) {
  check_chain("model", config.model);
  check_chain("data", config.data);
  check_chain("optimizer", config.optimizer);
  check_chain("schedule", config.schedule);
  check_chain("comm", config.comm);
  check_chain("grouping", config.grouping);
  check_chain("form", config.form);
  parse_quality(config.quality);
  if (!config.forms.empty())
    for (const std::string& form : split(config.forms, ';')) check_chain("forms", form);
  if (!chooses_plan(config) && (config.quality != "same" || !config.forms.empty()))
    throw ConfigError(
        fmt::format("quality and forms are what plan=auto chooses by; leave them out, or plan={}",
                    config.plan));
  check_known(config);
  if (config.augment != "none" && config.augment != "crop_flip") {
    const std::vector<std::string> valid{"crop_flip", "none"};
    throw ConfigError(unknown_name("augment", config.augment, valid));
  }
  if (config.order != "plan" && config.order != "agreed")
    throw ConfigError(fmt::format("order: must be plan or agreed, got '{}'", config.order));
  if (config.pin != "auto" && config.pin != "none")
    throw ConfigError(fmt::format("pin: must be auto or none, got '{}'", config.pin));
  if (config.name.find('/') != std::string::npos)
    throw ConfigError(
        fmt::format("name: must be without '/', got '{}'; runs= sets the folder", config.name));
  if (config.comm == "none" && config.ranks > 1)
    throw ConfigError(fmt::format("comm: none takes one rank, got ranks = {}", config.ranks));
}

std::string describe_options(bool markdown) {
  const TrainConfig defaults;
  std::string out, group;
  for (const auto& option : train_options()) {
    if (option.group != group)
      out += markdown
                 ? fmt::format(
                       "{}### {}\n\n| option | default | example | meaning |\n|---|---|---|---|\n",
                       group.empty() ? "" : "\n", option.group)
                 : fmt::format("{}{}\n", group.empty() ? "" : "\n", option.group);
    group = option.group;
    const std::string value = toml_value(option, defaults);
    if (markdown) {
      std::string example = option.example;
      for (std::size_t at = 0; (at = example.find('|', at)) != std::string::npos; at += 2)
        example.insert(at, "\\");
      std::string help = option.help;
      for (std::size_t at = 0; (at = help.find('|', at)) != std::string::npos; at += 2)
        help.insert(at, "\\");
      out += fmt::format("| `{}` | `{}` | `{}={}` | {} |\n", option.key, value, option.key, example,
                         help);
    } else {
      out += fmt::format("  {:<17} {}\n{:20}default {}, for example {}={}\n", option.key,
                         option.help, "", value, option.key, option.example);
    }
  }
  return out;
}

}  // namespace thinwire
