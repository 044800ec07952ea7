// SPDX-License-Identifier: Apache-2.0
// An experiment whose arms are simulated: what a paper claims of scaling, plans in virtual time
// over a list of clusters, and rules that say whether the curves have the claimed shape. A TOML
// file as those of experiment.h, with
//
//   kind = "simulated"
//   title, paper, claim, departs      as there
//   x = "ranks"                       the option that varies
//   xs = [4, 8, 16]                   its values, rising
//   shows = ["step_s", "speedup"]     the values to be drawn and tabled
//   [base]                            options of a point (thinwire/sim/curve.h)
//   [[at]]                            x, and options over base's for that value of it
//   [[arm]]                           name, note, and options over both
//   [[rule]]                          see CurveRule
//
// What a point is worth comes from a function that the caller gives; nothing is measured here.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/report/experiment.h"

namespace thinwire {

/// The words after `holds =`; each takes `arm` and `value`, the name of what is compared.
enum class CurveRuleKind : std::uint8_t {
  never_above,  ///< arm, of, margin (0): at every x at most so many per cent above of
  crosses,      ///< arm, of: below of at the least x, above it at the most
  ratio_at,     ///< at, arm, of, least and most: of / arm at x = at
  value_at,     ///< at, arm, least and most
  growth,       ///< arm, least and most: the value at the most x over that at the least
  has_minimum   ///< arm: below its ends somewhere in between
};

struct CurveRule {
  CurveRuleKind kind = CurveRuleKind::never_above;
  std::string arm, of, value;
  double at = 0, margin = 0;
  std::optional<double> least, most;
  int line = 0;
};

struct CurveExperiment {
  std::string name, source, title, paper, claim, departs, x;
  std::vector<double> xs;
  std::vector<std::string> shows;
  std::vector<Setting> base;
  std::map<double, std::vector<Setting>> at;
  std::vector<Arm> arms;  ///< accumulate stays 1
  std::vector<CurveRule> rules;
  const Arm& arm(std::string_view name) const;  ///< ConfigError that names the nearest
};

/// "simulated" or "trained", from the file's key `kind`. ConfigError where it is no TOML.
std::string experiment_kind(std::string_view text, const std::string& source);
/// ConfigError that names file, line and rule.
CurveExperiment parse_curve(std::string_view text, const std::string& source);

using PointValues = std::map<std::string, double>;
using PointFn = std::function<PointValues(const std::map<std::string, std::string>& options)>;
struct Curve {
  std::string arm;
  std::vector<PointValues> points;  ///< one an x
};
struct Curves {
  bool quick = false;
  std::string command;
  std::vector<double> xs;
  std::vector<Curve> curves;  ///< in the order of the experiment
  const PointValues* find(std::string_view arm, double x) const;  ///< null where there is none
};
/// What an arm's point is made of.
std::map<std::string, std::string> options_at(const CurveExperiment& experiment, const Arm& arm,
                                              double x);
/// Calls `point` for each arm and x. `arms`: empty for all; quick: only the ends, and what rules
/// look at. ConfigError of a point with file, line and arm; and where a rule or a drawing names a
/// value that points do not have.
Curves evaluate(const CurveExperiment& experiment, const std::vector<std::string>& arms, bool quick,
                const PointFn& point);
Judgement judge(const CurveExperiment& experiment, const Curves& curves);
std::string_view word(CurveRuleKind kind);

/// Tables and the verdict, for a terminal; a section of docs/experiments.md; a page; an object.
std::string text_outcome(const CurveExperiment& experiment, const Curves& curves);
std::string markdown_outcome(const CurveExperiment& experiment, const Curves& curves);
std::string html_outcome(const CurveExperiment& experiment, const Curves& curves);
Json json_outcome(const CurveExperiment& experiment, const Curves& curves);
/// "12.3 ms" of a name that ends in _s, "1.5 MB" of one in bytes, else four digits.
std::string value_text(std::string_view name, double value);
/// The same of what varies: ranks and the like as they are.
std::string x_text(const CurveExperiment& experiment, double x);

}  // namespace thinwire
