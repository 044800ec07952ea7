// SPDX-License-Identifier: Apache-2.0
// Everything `thinwire train` can be told, as plain values with one table that describes them: the
// table reads TOML files and key=value words, prints them, and makes docs/options.md. No torch.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "thinwire/core/json.h"

namespace thinwire {

/// The defaults are the demo: a small CNN on Fashion-MNIST. What each means stands in the table.
struct TrainConfig {
  std::string model = "cnn";
  std::string data = "fashion_mnist", augment = "none";
  std::int64_t loader_threads = 1, samples = 0, test_samples = 0;
  std::string optimizer = "sgd{momentum=0.9,nesterov=true,weight_decay=0.0005}";
  double learning_rate = 0.1;
  std::string schedule = "cosine{warmup=0.3}";
  double clip_norm = 0, label_smoothing = 0;
  std::int64_t batch_size = 128, epochs = 3, steps = 0, seed = 1;
  std::int64_t ranks = 1;
  std::string comm = "tcp", grouping = "size_cap{bytes=4MiB}", form = "none", algorithm, plan,
              quality = "same", forms, interface;
  std::string order = "plan";
  double timeout_s = 300;
  std::string pin = "auto";
  std::int64_t threads = 0;
  std::string runs = "runs", name;
  double eval_every = 1, checkpoint_every = 1;
  std::int64_t eval_batch_size = 1000, keep = 1, log_every = 20, trace_steps = 50;
  bool report = true, replan = true;
  bool operator==(const TrainConfig&) const = default;
};

using ConfigMember = std::variant<std::string TrainConfig::*, double TrainConfig::*,
                                  std::int64_t TrainConfig::*, bool TrainConfig::*>;
struct ConfigOption {
  std::string key, group;  ///< group: a heading of the table
  ConfigMember member;
  double least, most;   ///< of numbers
  std::string example;  ///< a value that is accepted
  std::string help;
};

/// In the order of the table.
const std::vector<ConfigOption>& train_options();

/// Sets one option from its text; ConfigError that names the nearest key, or rule and value.
void set_option(TrainConfig& config, std::string_view key, std::string_view value);
/// "key=value".
void set_option(TrainConfig& config, std::string_view assignment);
/// Reads a TOML file over `config`; only the keys of the table, at top level. ConfigError that
/// names file, line and key.
void read_toml(TrainConfig& config, const std::string& path);
void parse_toml(TrainConfig& config, std::string_view text, const std::string& source);
/// What a command line says: a TOML file first, where there is one, then key=value words.
void read_words(TrainConfig& config, const std::vector<std::string>& words);
/// The whole configuration; reading it back gives the same one.
std::string to_toml(const TrainConfig& config);
Json to_json(const TrainConfig& config);
/// What holds between options, and that every spec string is one. ConfigError.
void validate(const TrainConfig& config);

/// plan=auto, which quality= and forms= stand for too where no plan is named.
bool chooses_plan(const TrainConfig& config);

/// The option table as text for a terminal, or as Markdown for docs/options.md.
std::string describe_options(bool markdown);

}  // namespace thinwire
