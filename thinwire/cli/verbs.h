// SPDX-License-Identifier: Apache-2.0
// How a verb joins the command line: one file thinwire/cli/NAME.cpp with add_NAME, one line in
// tool.cpp.
//   void add_plan(CLI::App& app, Chosen& chosen) {
//     auto options = std::make_shared<PlanOptions>();
//     CLI::App* verb = add_verb(app, chosen, "plan", "what it does", "thinwire plan ...",
//                               [options] { return run_plan(*options); });
//     verb->add_option("--profile", options->profile, "...");
//   }
// `run_plan` prints to standard output and returns an exit code; errors are thrown. Files that the
// user names are read with `load`, so that a malformed one ends with code 2.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/registry.h"

namespace thinwire::cli {

/// 128 + n after signal n.
enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kCheckFailed = 3 };

/// What the chosen verb does once the command line is read.
using Chosen = std::function<int()>;

CLI::App* add_verb(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& help,
                   const std::string& example, Chosen run);

/// `read(text, path)` of the file `path`; a malformed file becomes a ConfigError.
template <class Read>
auto load(const std::string& path, Read read) {
  try {
    return read(read_text(path), path);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

/// One line of `thinwire list`.
struct ListRow {
  std::string kind, name, help;
};
template <class Make>
void append_rows(std::vector<ListRow>& rows, const std::string& kind,
                 const Registry<Make>& registry) {
  for (const auto& [name, entry] : registry.entries()) rows.push_back({kind, name, entry.help});
}

void append_torch_rows(std::vector<ListRow>& rows);  ///< list_torch.cpp, in a build with torch

void add_doctor(CLI::App& app, Chosen& chosen);
void add_list(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);

// With torch only.
void add_bench(CLI::App& app, Chosen& chosen);
void add_train(CLI::App& app, Chosen& chosen);
void add_eval(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
void add_reproduce(CLI::App& app, Chosen& chosen);

}  // namespace thinwire::cli
