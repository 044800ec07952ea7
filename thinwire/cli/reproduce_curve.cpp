// SPDX-License-Identifier: Apache-2.0
#include "thinwire/cli/reproduce_curve.h"

#include <fmt/format.h>

#include <filesystem>

#include "thinwire/cli/tool.h"
#include "thinwire/cli/verbs.h"
#include "thinwire/core/error.h"
#include "thinwire/report/experiment_text.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/sim/curve.h"

namespace thinwire::cli {
namespace fs = std::filesystem;
namespace {

std::string curve_folder(const CurveExperiment& experiment, const CurveRun& options) {
  if (options.out.empty())
    return RunFolder::create(options.runs,
                             "reproduce-" + experiment.name + (options.quick ? "-quick" : ""))
        .path();
  std::error_code error;
  fs::create_directories(options.out, error);
  if (!fs::is_directory(options.out))
    throw ConfigError(fmt::format("{}: cannot be made: {}", options.out, error.message()));
  return options.out;
}

void print_curve_arms(const CurveExperiment& experiment) {
  fmt::print("{}\n", experiment.title);
  for (const Arm& arm : experiment.arms)
    fmt::print("  {}: {}, {} from {:g} to {:g}, in virtual time\n", arm.name, options_text(arm),
               experiment.x, experiment.xs.front(), experiment.xs.back());
}

}  // namespace

int run_curves(const CurveExperiment& experiment, const CurveRun& options) {
  const Curves curves = evaluate(experiment, options.arms, options.quick, curve_point);
  if (options.dry_run) {
    print_curve_arms(experiment);
    return kOk;
  }
  const std::string out = curve_folder(experiment, options);
  const auto at = [&](const char* name) { return (fs::path(out) / name).string(); };
  Json json = json_outcome(experiment, curves);
  write_text(at("report.html"), html_outcome(experiment, curves));
  write_text(at("report.md"), markdown_outcome(experiment, curves));
  write_text(at("result.json"), dump(json, "result") + '\n');
  std::FILE* people = options.quiet ? nullptr : options.json || options.markdown ? stderr : stdout;
  if (options.json) {
    json["out"] = out;
    fmt::print("{}\n", dump(json, "reproduce"));
  } else if (options.markdown) {
    fmt::print("{}", markdown_outcome(experiment, curves));
  } else if (people) {
    fmt::print(people, "{}", text_outcome(experiment, curves));
  }
  if (people) fmt::print(people, "report: {}/report.html\n", out);
  return kOk;
}

}  // namespace thinwire::cli
