// SPDX-License-Identifier: Apache-2.0
// Rules and verdicts: what the measured runs say about a claim.
#include "thinwire/report/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/report/statistics.h"

namespace thinwire {
namespace {

using Status = ArmRun::Status;

template <class Value>
struct Word {
  Value value;
  std::string_view text;
};
constexpr Word<RuleKind> kRuleWords[] = {{RuleKind::within, "within"},
                                         {RuleKind::better, "better"},
                                         {RuleKind::reaches, "reaches"},
                                         {RuleKind::bytes_ratio, "bytes_ratio"},
                                         {RuleKind::diverges, "diverges"}};
constexpr Word<Status> kStatusWords[] = {
    {Status::finished, "finished"}, {Status::diverged, "diverged"}, {Status::failed, "failed"}};

template <class Value, std::size_t n>
std::string_view word_in(const Word<Value> (&words)[n], Value value) {
  for (const auto& one : words)
    if (one.value == value) return one.text;
  return "";
}

/// The runs of one arm, or of two at the same seeds.
struct Pairs {
  std::vector<double> gains;           ///< seeds where both have finished
  std::vector<std::int64_t> diverged;  ///< seeds where the arm has diverged
  std::vector<std::int64_t> of_diverged;
  int failed = 0;  ///< seeds where one of the two has failed or is missing
};

double gain_of(Metric metric, const ArmRun& arm, const ArmRun& of) {
  if (metric == Metric::test_accuracy) return 100 * (arm.test_accuracy - of.test_accuracy);
  return of.test_loss > 0 ? 100 * (of.test_loss - arm.test_loss) / of.test_loss : 0;
}

std::vector<std::int64_t> seeds_of(const Measured& measured, std::string_view arm) {
  std::vector<std::int64_t> seeds;
  for (const ArmRun& run : measured.runs)
    if (run.arm == arm) seeds.push_back(run.seed);
  return seeds;
}

Pairs pairs_of(const Rule& rule, const Measured& measured) {
  Pairs out;
  for (const std::int64_t seed : seeds_of(measured, rule.arm)) {
    const ArmRun *arm = measured.find(rule.arm, seed), *of = measured.find(rule.of, seed);
    if (!of || arm->status == Status::failed || of->status == Status::failed) {
      ++out.failed;
      continue;
    }
    if (arm->status == Status::diverged) out.diverged.push_back(seed);
    if (of->status == Status::diverged) out.of_diverged.push_back(seed);
    if (arm->status == Status::finished && of->status == Status::finished)
      out.gains.push_back(gain_of(rule.metric, *arm, *of));
  }
  return out;
}

std::string seed_list(const std::vector<std::int64_t>& seeds) {
  std::vector<std::string> out;
  for (const auto seed : seeds) out.push_back(fmt::format("{}", seed));
  return (seeds.size() == 1 ? "seed " : "seeds ") + join(out, ", ");
}

std::string unit(Metric metric) {
  return metric == Metric::test_accuracy ? "points" : "% of test loss";
}

std::string interval_text(const MeanInterval& interval, Metric metric) {
  if (interval.count < 2)
    return fmt::format("{:+.2f} {} (one seed, no interval)", interval.mean, unit(metric));
  return fmt::format("{:+.2f} {} [{:+.2f}, {:+.2f}], {} seeds", interval.mean, unit(metric),
                     interval.lower, interval.upper, interval.count);
}

/// within and better are one comparison: the gain's interval against a limit.
RuleResult judge_gain(const Rule& rule, const Measured& measured) {
  const double limit = rule.kind == RuleKind::within ? -rule.limit : rule.limit;
  const Pairs pairs = pairs_of(rule, measured);
  const std::string what =
      rule.kind == RuleKind::within
          ? fmt::format("{} no more than {:g} {} behind {}", rule.arm, rule.limit,
                        unit(rule.metric), rule.of)
          : fmt::format("{} ahead of {}{}", rule.arm, rule.of,
                        rule.limit > 0 ? fmt::format(" by {:g} {}", rule.limit, unit(rule.metric))
                                       : std::string());
  const auto say = [&](RuleState state, const std::string& text) {
    return RuleResult{state, fmt::format("{}: {}", what, text)};
  };
  if (!pairs.diverged.empty())
    return say(RuleState::fails,
               fmt::format("{} diverged at {}", rule.arm, seed_list(pairs.diverged)));
  if (pairs.gains.empty() && !pairs.of_diverged.empty())
    return rule.kind == RuleKind::better
               ? say(RuleState::holds,
                     fmt::format("{} diverged at {}", rule.of, seed_list(pairs.of_diverged)))
               : say(RuleState::unmeasured,
                     fmt::format("{} diverged, so that there is nothing to compare with", rule.of));
  const auto interval = mean_interval(pairs.gains);
  if (!interval) return say(RuleState::unmeasured, "not measured");
  std::string text = interval_text(*interval, rule.metric);
  if (!pairs.of_diverged.empty())
    text += fmt::format("; {} diverged at {}", rule.of, seed_list(pairs.of_diverged));
  if (pairs.failed > 0) text += fmt::format("; {} seeds are missing", pairs.failed);
  if (interval->count > 1 && interval->lower >= limit && (limit < 0 || interval->lower > limit))
    return say(RuleState::holds, text);
  if (interval->count > 1 && interval->upper < limit) return say(RuleState::fails, text);
  return say(RuleState::undecided, text);
}

struct Finished {
  std::vector<const ArmRun*> runs;
  std::vector<std::int64_t> diverged;
};
Finished finished_of(const Measured& measured, std::string_view arm) {
  Finished out;
  for (const ArmRun& run : measured.runs) {
    if (run.arm != arm) continue;
    if (run.status == Status::finished) out.runs.push_back(&run);
    if (run.status == Status::diverged) out.diverged.push_back(run.seed);
  }
  return out;
}

RuleResult judge_reaches(const Rule& rule, const Measured& measured) {
  const bool accuracy = rule.metric == Metric::test_accuracy;
  const Finished finished = finished_of(measured, rule.arm);
  std::string what = accuracy ? fmt::format("{} reaches {:g} % test accuracy", rule.arm, rule.limit)
                              : fmt::format("{} reaches a test loss of {:g}", rule.arm, rule.limit);
  if (!finished.diverged.empty())
    return {RuleState::fails,
            fmt::format("{}: it diverged at {}", what, seed_list(finished.diverged))};
  if (finished.runs.empty()) return {RuleState::unmeasured, what + ": not measured"};
  double mean = 0;
  for (const ArmRun* run : finished.runs)
    mean += (accuracy ? 100 * run->test_accuracy : run->test_loss) /
            static_cast<double>(finished.runs.size());
  const bool holds = accuracy ? mean >= rule.limit : mean <= rule.limit;
  return {holds ? RuleState::holds : RuleState::fails, accuracy
                                                           ? fmt::format("{}: {:.2f} %", what, mean)
                                                           : fmt::format("{}: {:.4f}", what, mean)};
}

/// Divergence does not change what is sent, but a run that ended early may not have sent a typical
/// step; so only whole runs count.
RuleResult judge_bytes(const Rule& rule, const Measured& measured) {
  const Finished arm = finished_of(measured, rule.arm), of = finished_of(measured, rule.of);
  const std::string what =
      fmt::format("{} sends {:g} times less than {}", rule.arm, rule.limit, rule.of);
  if (arm.runs.empty() || of.runs.empty()) return {RuleState::unmeasured, what + ": not measured"};
  const double few = arm.runs.front()->bytes_per_step, many = of.runs.front()->bytes_per_step;
  if (few <= 0 || many <= 0)
    return {RuleState::unmeasured, what + ": nothing was sent, on one rank there is nobody to"};
  return {many / few >= rule.limit ? RuleState::holds : RuleState::fails,
          fmt::format("{}: {:.1f} times", what, many / few)};
}

RuleResult judge_diverges(const Rule& rule, const Measured& measured) {
  const std::string what =
      fmt::format("{} diverges, or stays under {:g} % test accuracy", rule.arm, rule.limit);
  int astray = 0, seen = 0;
  double best = 0;
  for (const ArmRun& run : measured.runs) {
    if (run.arm != rule.arm || run.status == Status::failed) continue;
    ++seen;
    const bool diverged = run.status == Status::diverged;
    astray += diverged || 100 * run.test_accuracy < rule.limit;
    if (!diverged) best = std::max(best, 100 * run.test_accuracy);
  }
  if (seen == 0) return {RuleState::unmeasured, what + ": not measured"};
  return {astray == seen ? RuleState::holds : RuleState::fails,
          fmt::format("{}: {} of {} seeds{}", what, astray, seen,
                      best > 0 ? fmt::format(", at best {:.2f} %", best) : std::string())};
}

RuleResult judge_rule(const Rule& rule, const Measured& measured) {
  switch (rule.kind) {
    case RuleKind::within:
    case RuleKind::better:
      return judge_gain(rule, measured);
    case RuleKind::reaches:
      return judge_reaches(rule, measured);
    case RuleKind::bytes_ratio:
      return judge_bytes(rule, measured);
    case RuleKind::diverges:
      break;
  }
  return judge_diverges(rule, measured);
}

Status status_named(const std::string& name, std::string_view source) {
  for (const auto& one : kStatusWords)
    if (one.text == name) return one.value;
  throw DataError(
      fmt::format("{}: status '{}' is none of finished, diverged, failed", source, name));
}

ArmRun run_from_json(const Json& json, std::string_view source) {
  ArmRun run;
  run.arm = get<std::string>(json, "arm", source);
  run.seed = get<std::int64_t>(json, "seed", source);
  run.status = status_named(get<std::string>(json, "status", source), source);
  run.why = get<std::string>(json, "why", source);
  run.test_accuracy = get<double>(json, "test_accuracy", source);
  run.test_loss = get<double>(json, "test_loss", source);
  run.bytes_per_step = get<double>(json, "bytes_per_step", source);
  run.step_s = get<double>(json, "step_s", source);
  run.exposed_s = get<double>(json, "exposed_s", source);
  run.train_s = get<double>(json, "train_s", source);
  run.steps = get<std::int64_t>(json, "steps", source);
  run.samples = get<std::int64_t>(json, "samples", source);
  run.data = get<std::string>(json, "data", source);
  run.configuration = get<Json>(json, "configuration", source);
  return run;
}

}  // namespace

std::string_view word(RuleKind kind) { return word_in(kRuleWords, kind); }
std::string_view word(Status status) { return word_in(kStatusWords, status); }
std::string_view word(Metric metric) {
  return metric == Metric::test_accuracy ? "test_accuracy" : "test_loss";
}
std::string_view word(RuleState state) {
  constexpr Word<RuleState> kWords[] = {{RuleState::holds, "holds"},
                                        {RuleState::fails, "fails"},
                                        {RuleState::undecided, "undecided"},
                                        {RuleState::unmeasured, "unmeasured"}};
  return word_in(kWords, state);
}
std::string_view word(Shape shape) {
  constexpr Word<Shape> kWords[] = {{Shape::reproduced, "reproduced"},
                                    {Shape::partly, "partly reproduced"},
                                    {Shape::not_reproduced, "not reproduced"},
                                    {Shape::incomplete, "incomplete"}};
  return word_in(kWords, shape);
}

const Arm& Experiment::arm(std::string_view wanted) const {
  std::vector<std::string> names;
  for (const Arm& one : arms) {
    if (one.name == wanted) return one;
    names.push_back(one.name);
  }
  throw ConfigError(unknown_name("arm", wanted, names));
}

const ArmRun* Measured::find(std::string_view arm, std::int64_t seed) const {
  const auto it = std::find_if(runs.begin(), runs.end(), [&](const ArmRun& run) {
    return run.arm == arm && run.seed == seed;
  });
  return it == runs.end() ? nullptr : &*it;
}

Json to_json(const ArmRun& run) {
  return {{"arm", run.arm},
          {"seed", run.seed},
          {"status", word(run.status)},
          {"why", run.why},
          {"test_accuracy", run.test_accuracy},
          {"test_loss", run.test_loss},
          {"bytes_per_step", run.bytes_per_step},
          {"step_s", run.step_s},
          {"exposed_s", run.exposed_s},
          {"train_s", run.train_s},
          {"steps", run.steps},
          {"samples", run.samples},
          {"data", run.data},
          {"configuration", run.configuration}};
}

Json to_json(const Measured& measured) {
  Json runs = Json::array();
  for (const ArmRun& run : measured.runs) runs.push_back(to_json(run));
  return {{"thinwire_measured", 1},
          {"quick", measured.quick},
          {"command", measured.command},
          {"runs", runs}};
}

Measured measured_from_json(const Json& json, std::string_view source) {
  if (get<int>(json, "thinwire_measured", source) != 1)
    throw DataError(fmt::format("{}: thinwire_measured must be 1", source));
  Measured out{.quick = get<bool>(json, "quick", source),
               .command = get<std::string>(json, "command", source),
               .runs = {}};
  for (const Json& run : get<Json>(json, "runs", source))
    out.runs.push_back(run_from_json(run, source));
  return out;
}

Judgement judge(const Experiment& experiment, const Measured& measured) {
  Judgement out;
  std::map<RuleState, int> counts;
  for (const Rule& rule : experiment.rules) {
    out.rules.push_back(judge_rule(rule, measured));
    ++counts[out.rules.back().state];
  }
  const int all = static_cast<int>(out.rules.size()), held = counts[RuleState::holds];
  if (counts[RuleState::unmeasured] > 0)
    out.shape = Shape::incomplete;
  else
    out.shape = held == all ? Shape::reproduced : held > 0 ? Shape::partly : Shape::not_reproduced;
  out.sentence = fmt::format("{}: {} of {} rules hold", word(out.shape), held, all);
  for (const RuleState state : {RuleState::fails, RuleState::undecided, RuleState::unmeasured})
    if (counts[state] > 0)
      out.sentence +=
          fmt::format(", {} {}", counts[state],
                      state == RuleState::fails && counts[state] > 1 ? "fail" : word(state));
  return out;
}

}  // namespace thinwire
