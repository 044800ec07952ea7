// SPDX-License-Identifier: Apache-2.0
// An experiment as data: what a paper claims, which trainings test it at desk size, and rules that
// say whether the claim's shape has come out. One TOML file each (experiments/NAME.toml):
//
//   title = "..."               one line
//   paper = "..."               authors, venue, year, link
//   claim = "..."               what the paper says, in our words
//   departs = "..."             how this setting differs from the paper's
//   control = "dense"           the arm that differences are taken to; the first one if not given
//   seeds = 5                   runs of every arm: seeds 1, 2, ..., the same for all arms
//   [base]                      options of `thinwire train`; `steps` among them
//   [quick]                     options over base's under --quick; `seeds` may be among them
//   [[arm]]                     a training: name, note, and options over base's;
//   accumulate = 8              one update for the samples of so many steps: as many samples,
//   seldom sent
//   [[rule]]                    see Rule; a key `holds` and what that rule needs
//
// The runner (thinwire/train/reproduce.h) measures, `judge` compares. No torch.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/json.h"

namespace thinwire {

/// One option of `thinwire train` as the file has it.
struct Setting {
  std::string key, value;
  int line = 0;
};

struct Arm {
  std::string name, note;
  std::int64_t accumulate = 1;
  std::vector<Setting> settings;
  int line = 0;
};

/// The words after `holds =`. A gain is a difference of two arms at the same seed, positive where
/// `arm` is better: test accuracy in points, test loss in per cent of `of`'s.
enum class RuleKind : std::uint8_t {
  within,       ///< arm, of, metric, margin: the gain's interval lies above -margin
  better,       ///< arm, of, metric, margin (0): the gain's interval lies above margin
  reaches,      ///< arm, metric, value: the mean is at least (loss: at most) value; accuracy in per
                ///< cent
  bytes_ratio,  ///< arm, of, least: `of` sends at least so many times the bytes
  diverges,  ///< arm, below: every seed ends without a number, or under so many per cent accuracy
};
enum class Metric : std::uint8_t { test_accuracy, test_loss };

struct Rule {
  RuleKind kind = RuleKind::within;
  std::string arm, of;
  Metric metric = Metric::test_accuracy;
  double limit = 0;  ///< margin, value, least or below
  int line = 0;
};

struct Experiment {
  std::string name, source;  ///< name: of the file without its ending
  std::string title, paper, claim, departs, control;
  std::int64_t seeds = 5, quick_seeds = 0;  ///< quick_seeds 0: as seeds
  std::vector<Setting> base, quick;
  std::vector<Arm> arms;
  std::vector<Rule> rules;

  const Arm& arm(std::string_view name) const;  ///< ConfigError that names the nearest
};

/// ConfigError that names file, line and rule. Options of train are not looked up here.
Experiment parse_experiment(std::string_view text, const std::string& source);

/// One training of one arm.
struct ArmRun {
  enum class Status : std::uint8_t { finished, diverged, failed };
  std::string arm;
  std::int64_t seed = 0;
  Status status = Status::finished;
  std::string why;                          ///< it diverged or failed
  double test_accuracy = 0, test_loss = 0;  ///< finished only
  double bytes_per_step = 0;  ///< sent by one rank for the samples of one step of base
  double step_s = 0, exposed_s = 0, train_s = 0;  ///< step_s, exposed_s: medians of its own steps
  std::int64_t steps = 0, samples = 0;
  std::string data;                     ///< which data, for people
  Json configuration = Json::object();  ///< everything it was trained with
};

/// What one `thinwire reproduce` has measured, and with what.
struct Measured {
  bool quick = false;
  std::string command;
  std::vector<ArmRun> runs;
  /// The run of an arm and a seed; null where there is none.
  const ArmRun* find(std::string_view arm, std::int64_t seed) const;
};
Json to_json(const ArmRun& run);
Json to_json(const Measured& measured);
Measured measured_from_json(const Json& json, std::string_view source);  ///< DataError

/// undecided: the interval includes the limit. unmeasured: runs are missing.
enum class RuleState : std::uint8_t { holds, fails, undecided, unmeasured };
struct RuleResult {
  RuleState state = RuleState::unmeasured;
  std::string sentence;
};
/// reproduced: every rule holds; partly: some do; incomplete: runs that a rule needs are missing.
enum class Shape : std::uint8_t { reproduced, partly, not_reproduced, incomplete };
struct Judgement {
  Shape shape = Shape::incomplete;
  std::string sentence;
  std::vector<RuleResult> rules;  ///< in the order of the experiment
};
Judgement judge(const Experiment& experiment, const Measured& measured);

std::string_view word(RuleKind kind);
std::string_view word(Metric metric);
std::string_view word(RuleState state);
std::string_view word(Shape shape);
std::string_view word(ArmRun::Status status);

}  // namespace thinwire
