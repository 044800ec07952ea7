// SPDX-License-Identifier: Apache-2.0
// Points, rules and verdicts of simulated experiments.
#include "thinwire/report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

using CurveKind = CurveRuleKind;

std::vector<double> looked_at(const CurveExperiment& experiment) {
  std::set<double> out{experiment.xs.front(), experiment.xs.back()};
  for (const CurveRule& rule : experiment.rules) {
    if (rule.kind == CurveKind::ratio_at || rule.kind == CurveKind::value_at) out.insert(rule.at);
    if (rule.kind == CurveKind::has_minimum) out.insert(experiment.xs.begin(), experiment.xs.end());
  }
  return {out.begin(), out.end()};
}

PointValues checked_point(const CurveExperiment& experiment, const Arm& arm, double x,
                          const PointFn& point) {
  try {
    return point(options_at(experiment, arm, x));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}, line {}: arm {}, {} {:g}: {}", experiment.source, arm.line,
                                  arm.name, experiment.x, x, error.what()));
  }
}

void known_value(const CurveExperiment& experiment, const std::string& name, int line,
                 const PointValues& point) {
  if (point.contains(name)) return;
  std::vector<std::string> valid;
  for (const auto& [key, value] : point) valid.push_back(key);
  throw ConfigError(fmt::format("{}{}: {}", experiment.source,
                                line > 0 ? fmt::format(", line {}", line) : ", shows",
                                unknown_name("value", name, valid)));
}

std::string limits_text(const CurveRule& rule) {
  if (rule.least && rule.most && *rule.least == *rule.most)
    return fmt::format("exactly {}", *rule.least);
  if (rule.least && rule.most) return fmt::format("in [{:g}, {:g}]", *rule.least, *rule.most);
  return rule.least ? fmt::format("at least {:g}", *rule.least)
                    : fmt::format("at most {:g}", *rule.most);
}

/// Of numbers that were computed: the last bits are rounding.
bool within_limits(const CurveRule& rule, double value) {
  constexpr double kRounding = 1e-9;
  const double slack = kRounding * std::abs(value);
  return (!rule.least || value >= *rule.least - slack) &&
         (!rule.most || value <= *rule.most + slack);
}

/// Looks at one rule; `missing` where a point that it needs is not there.
class CurveJudge {
 public:
  CurveJudge(const CurveRule& rule, const CurveExperiment& experiment, const Curves& curves)
      : rule_(rule), experiment_(experiment), curves_(curves) {}

  RuleResult result() {
    const bool holds = look();
    return {missing_ ? RuleState::unmeasured
            : holds  ? RuleState::holds
                     : RuleState::fails,
            said_ + (missing_ ? ": points are missing" : "")};
  }

 private:
  double value(const std::string& arm, double x) {
    const PointValues* point = curves_.find(arm, x);
    if (!point) missing_ = true;
    return point ? point->at(rule_.value) : 1;
  }
  double mine(double x) { return value(rule_.arm, x); }
  double other(double x) { return value(rule_.of, x); }
  std::string shown(double number) const { return value_text(rule_.value, number); }
  std::string at(double x) const {
    return fmt::format("{} {}", experiment_.x, x_text(experiment_, x));
  }

  bool look() {
    switch (rule_.kind) {
      case CurveKind::never_above:
        return never_above();
      case CurveKind::crosses:
        return crosses();
      case CurveKind::ratio_at:
        return ratio_at();
      case CurveKind::value_at:
        said_ = fmt::format("{} of {} at {} {}: {}", rule_.value, rule_.arm, at(rule_.at),
                            limits_text(rule_), shown(mine(rule_.at)));
        return within_limits(rule_, mine(rule_.at));
      case CurveKind::growth:
        return growth();
      case CurveKind::has_minimum:
        return has_minimum();
    }
    return false;
  }
  bool never_above() {
    double worst = -1e300, where = 0;
    for (const double x : curves_.xs) {
      const double of = other(x);
      const double above = of != 0 ? 100 * (mine(x) - of) / of : mine(x) > 0 ? 1e9 : 0;
      if (above > worst) {
        worst = above;
        where = x;
      }
    }
    said_ =
        fmt::format("{} of {} nowhere {}above {}: at most {:+.2f} %, at {}", rule_.value, rule_.arm,
                    rule_.margin > 0 ? fmt::format("more than {:g} % ", rule_.margin) : "",
                    rule_.of, worst, at(where));
    return worst <= rule_.margin + 1e-7;
  }
  bool crosses() {
    const double first = curves_.xs.front(), last = curves_.xs.back();
    said_ =
        fmt::format("{} of {} below that of {} at {}, above it at {}: {} and {}, then {} and {}",
                    rule_.value, rule_.arm, rule_.of, at(first), at(last), shown(mine(first)),
                    shown(other(first)), shown(mine(last)), shown(other(last)));
    return mine(first) < other(first) && mine(last) > other(last);
  }
  bool ratio_at() {
    const double ratio = other(rule_.at) / mine(rule_.at);
    said_ = fmt::format("{} of {} over that of {} at {} {}: {:.4g}", rule_.value, rule_.of,
                        rule_.arm, at(rule_.at), limits_text(rule_), ratio);
    return within_limits(rule_, ratio);
  }
  bool growth() {
    const double times = mine(curves_.xs.back()) / mine(curves_.xs.front());
    said_ = fmt::format("{} of {} at {} over that at {} {}: {:.4g}", rule_.value, rule_.arm,
                        at(curves_.xs.back()), at(curves_.xs.front()), limits_text(rule_), times);
    return within_limits(rule_, times);
  }
  bool has_minimum() {
    double least = mine(curves_.xs.front()), where = curves_.xs.front();
    for (const double x : curves_.xs)
      if (mine(x) < least) {
        least = mine(x);
        where = x;
      }
    said_ = fmt::format("{} of {} is least between the ends: {} at {}", rule_.value, rule_.arm,
                        shown(least), at(where));
    return least < mine(curves_.xs.front()) && least < mine(curves_.xs.back());
  }

  const CurveRule& rule_;
  const CurveExperiment& experiment_;
  const Curves& curves_;
  std::string said_;
  bool missing_ = false;
};

}  // namespace

const Arm& CurveExperiment::arm(std::string_view wanted) const {
  std::vector<std::string> names;
  for (const Arm& one : arms) {
    if (one.name == wanted) return one;
    names.push_back(one.name);
  }
  throw ConfigError(unknown_name("arm", wanted, names));
}

const PointValues* Curves::find(std::string_view arm, double x) const {
  const auto at = std::find(xs.begin(), xs.end(), x);
  for (const Curve& curve : curves)
    if (curve.arm == arm && at != xs.end())
      return &curve.points[static_cast<std::size_t>(at - xs.begin())];
  return nullptr;
}

std::map<std::string, std::string> options_at(const CurveExperiment& experiment, const Arm& arm,
                                              double x) {
  std::map<std::string, std::string> out;
  for (const Setting& setting : experiment.base) out[setting.key] = setting.value;
  if (const auto found = experiment.at.find(x); found != experiment.at.end())
    for (const Setting& setting : found->second) out[setting.key] = setting.value;
  for (const Setting& setting : arm.settings) out[setting.key] = setting.value;
  out[experiment.x] = fmt::format("{}", x);
  return out;
}

Curves evaluate(const CurveExperiment& experiment, const std::vector<std::string>& arms, bool quick,
                const PointFn& point) {
  Curves out{.quick = quick, .command = "thinwire reproduce " + experiment.name};
  if (quick) out.command += " --quick";
  out.xs = quick ? looked_at(experiment) : experiment.xs;
  for (const std::string& name : arms) experiment.arm(name);
  for (const Arm& arm : experiment.arms) {
    if (!arms.empty() && std::find(arms.begin(), arms.end(), arm.name) == arms.end()) continue;
    Curve curve{.arm = arm.name, .points = {}};
    for (const double x : out.xs) curve.points.push_back(checked_point(experiment, arm, x, point));
    out.curves.push_back(std::move(curve));
  }
  for (const Curve& curve : out.curves) {
    for (const std::string& name : experiment.shows)
      known_value(experiment, name, 0, curve.points.front());
    for (const CurveRule& rule : experiment.rules)
      if (rule.arm == curve.arm || rule.of == curve.arm)
        known_value(experiment, rule.value, rule.line, curve.points.front());
  }
  return out;
}

Judgement judge(const CurveExperiment& experiment, const Curves& curves) {
  Judgement out;
  int held = 0, failed = 0, missing = 0;
  for (const CurveRule& rule : experiment.rules) {
    out.rules.push_back(CurveJudge(rule, experiment, curves).result());
    held += out.rules.back().state == RuleState::holds;
    failed += out.rules.back().state == RuleState::fails;
    missing += out.rules.back().state == RuleState::unmeasured;
  }
  const int all = static_cast<int>(out.rules.size());
  out.shape = missing > 0   ? Shape::incomplete
              : held == all ? Shape::reproduced
              : held > 0    ? Shape::partly
                            : Shape::not_reproduced;
  out.sentence = fmt::format("{}: {} of {} rules hold", word(out.shape), held, all);
  if (failed > 0) out.sentence += fmt::format(", {} {}", failed, failed > 1 ? "fail" : "fails");
  if (missing > 0) out.sentence += fmt::format(", {} unmeasured", missing);
  return out;
}

std::string_view word(CurveRuleKind kind) {
  switch (kind) {
    case CurveKind::never_above:
      return "never_above";
    case CurveKind::crosses:
      return "crosses";
    case CurveKind::ratio_at:
      return "ratio_at";
    case CurveKind::value_at:
      return "value_at";
    case CurveKind::growth:
      return "growth";
    case CurveKind::has_minimum:
      return "has_minimum";
  }
  return "";
}

}  // namespace thinwire
