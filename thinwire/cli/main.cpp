// SPDX-License-Identifier: Apache-2.0
// The command line tool: finds the verb, runs it, and turns what is thrown into one sentence and an
// exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "thinwire/cli/verbs.h"
#include "thinwire/core/notice.h"
#include "thinwire/core/version.h"

namespace thinwire::cli {
namespace {

void add_verbs(CLI::App& app, Chosen& chosen) {
  add_doctor(app, chosen);
  add_list(app, chosen);
  add_plan(app, chosen);
  add_report(app, chosen);
#ifdef TW_HAS_TORCH
  add_bench(app, chosen);
  add_train(app, chosen);
  add_eval(app, chosen);
#endif
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

/// What CLI11 did not expect, as the sentence of every unknown name.
std::string unknown_option(const CLI::App& app) {
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands()[0];
  const CLI::App& verb = *deepest;
  std::vector<std::string> valid;
  for (const auto* option : verb.get_options())
    for (const auto& name : option->get_lnames()) valid.push_back("--" + name);
  const std::string first = app.remaining(true).at(0);
  const std::string word = first.substr(0, first.find('='));
  if (word.starts_with("-")) return verb.get_name() + ": " + unknown_name("option", word, valid);
  return fmt::format("{}: unexpected argument '{}'", verb.get_name(), first);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Thinwire: trains networks at near-linear speed over thin links", "thinwire");
  Chosen chosen;
  app.set_version_flag("--version", "thinwire " + std::string(kVersion));
  app.require_subcommand(1);
  app.footer("'thinwire VERB --help' shows the options and an example of each verb.");
  add_verbs(app, chosen);
  if (argc < 2) throw ConfigError("a verb is needed\n\n" + app.help());
  const std::string first = argv[1];
  const auto names = verb_names(app);
  if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end())
    throw ConfigError(unknown_name("verb", first, names));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ExtrasError&) {
    throw ConfigError(unknown_option(app));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  return chosen();
}

/// A full disk or a closed pipe must not look like success.
int flushed(int code) {
  if (std::fflush(stdout) == 0) return code;
  throw Error("cannot write to standard output");
}

}  // namespace

CLI::App* add_verb(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& help,
                   const std::string& example, Chosen run) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->footer("Example:\n  " + example);
  verb->callback([&chosen, run = std::move(run)] { chosen = run; });
  return verb;
}

}  // namespace thinwire::cli

int main(int argc, char** argv) {
  using namespace thinwire;
  on_notice([](const std::string& text) { fmt::print(stderr, "thinwire: {}\n", text); });
  try {
    return cli::flushed(cli::parse_and_run(argc, argv));
  } catch (const ConfigError& error) {
    fmt::print(stderr, "thinwire: {}\n", error.what());
    return cli::kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "thinwire: {}\n", error.what());
    return cli::kFailed;
  }
}
