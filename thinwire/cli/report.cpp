// SPDX-License-Identifier: Apache-2.0
// thinwire report: the HTML report of one run folder, or of several side by side.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "thinwire/cli/verbs.h"
#include "thinwire/report/figures.h"
#include "thinwire/report/html.h"

namespace thinwire::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  bool json = false;
};

Json run_json(const RunData& run) {
  const Json info = thinwire::to_json(run.info);
  return {{"path", run.path},
          {"name", run.info.name},
          {"status", run.info.status},
          {"setup", info.at("setup")},
          {"summary", thinwire::to_json(known_summary(run))},
          {"problems", run.problems}};
}

RunData read(const std::string& path) {
  try {
    return read_run(path);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

int run_report(const ReportOptions& options) {
  std::vector<RunData> runs;
  for (const std::string& path : options.runs) runs.push_back(read(path));
  std::string out = options.out;
  if (out.empty())
    out = runs.size() == 1 ? (std::filesystem::path(runs[0].path) / "report.html").string()
                           : "report.html";
  write_text(out, html_report(runs));
  if (options.json) {
    Json list = Json::array();
    for (const RunData& one : runs) list.push_back(run_json(one));
    fmt::print("{}\n",
               dump({{"report", out}, {"verdict", verdict(runs)}, {"runs", list}}, "report"));
    return kOk;
  }
  fmt::print("{}\n", verdict(runs));
  for (const RunData& one : runs)
    for (const std::string& problem : one.problems) fmt::print("{}: {}\n", one.info.name, problem);
  fmt::print("report: {}\n", out);
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = add_verb(app, chosen, "report",
                            "Write the HTML report of runs, side by side if several are given",
                            "thinwire report runs/cnn runs/cnn-topk --out compare.html",
                            [options] { return run_report(*options); });
  verb->add_option("run", options->runs, "Run folders; ratios are against the first")->required();
  verb->add_option("--out", options->out,
                   "The file to write (default: report.html in the run's folder; of several "
                   "runs, in the current one)");
  verb->add_flag("--json", options->json, "One JSON object with the figures on standard output");
}

}  // namespace thinwire::cli
