// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/config.h"

#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

TEST(Config, PrintsBackToItself) {
  TrainConfig config;
  set_option(config, "model=resnet{depth=20}");
  set_option(config, "learning_rate=0.0125");
  set_option(config, "report=false");
  set_option(config, "runs=/tmp/a \"quoted\" folder");
  TrainConfig again;
  parse_toml(again, to_toml(config), "printed");
  EXPECT_EQ(again, config);
  EXPECT_EQ(to_json(again).dump(), to_json(config).dump());
}

TEST(Config, EveryExampleOfTheTableIsTaken) {
  for (const auto& option : train_options()) {
    TrainConfig config;
    EXPECT_NO_THROW(set_option(config, option.key, option.example)) << option.key;
    const TrainConfig defaults;
    EXPECT_FALSE(option.example.empty()) << option.key;
    if (option.key != "form") {  // only one form exists
      EXPECT_NE(to_json(config)[option.key], to_json(defaults)[option.key])
          << option.key << ": the example is the default";
    }
  }
}

TEST(KnownFailures, KF58_MisspeltOptionNamesTheNearest) {
  TrainConfig config;
  for (const auto& option : train_options()) {
    if (option.key.size() < 4) continue;
    std::string wrong = option.key;
    wrong.erase(wrong.size() / 2, 1);
    TW_EXPECT_THROW(set_option(config, wrong, option.example), ConfigError, wrong);
    TW_EXPECT_THROW(set_option(config, wrong, option.example), ConfigError, option.key);
  }
}

TEST(Config, RefusesWithRuleAndValue) {
  TrainConfig config;
  TW_EXPECT_THROW(set_option(config, "batch_size=0"), ConfigError,
                  "batch_size: must be in [1, 1000000000], got 0");
  TW_EXPECT_THROW(set_option(config, "batch_size=1.5"), ConfigError, "whole number");
  TW_EXPECT_THROW(set_option(config, "batch_size=many"), ConfigError, "'many'");
  TW_EXPECT_THROW(set_option(config, "report=perhaps"), ConfigError, "true or false");
  TW_EXPECT_THROW(set_option(config, "epochs"), ConfigError, "key=value");
  EXPECT_EQ(config, TrainConfig{});
  config.model = "mlp{sizes";
  TW_EXPECT_THROW(validate(config), ConfigError, "model: ");
}

TEST(Config, TomlErrorsNameFileAndLine) {
  TrainConfig config;
  TW_EXPECT_THROW(parse_toml(config, "epochs = 2\nbatchsize = 4\n", "a.toml"), ConfigError,
                  "a.toml, line 2, batchsize: ");
  TW_EXPECT_THROW(parse_toml(config, "epochs = 2\nbatchsize = 4\n", "a.toml"), ConfigError,
                  "batch_size");
  TW_EXPECT_THROW(parse_toml(config, "epochs = \n", "a.toml"), ConfigError, "a.toml, line 1");
  TW_EXPECT_THROW(parse_toml(config, "[model]\nname = 'cnn'\n", "a.toml"), ConfigError, "table");
  TW_EXPECT_THROW(read_toml(config, "/nowhere/a.toml"), ConfigError, "/nowhere/a.toml");
}

}  // namespace
}  // namespace thinwire
