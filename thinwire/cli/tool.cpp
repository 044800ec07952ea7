// SPDX-License-Identifier: Apache-2.0
// The command line tool: finds the verb, runs it, and turns what is thrown into one sentence and an
// exit code.
#include "thinwire/cli/tool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include "thinwire/cli/verbs.h"
#include "thinwire/core/notice.h"
#include "thinwire/core/text.h"
#include "thinwire/core/version.h"

namespace thinwire::cli {
namespace {

void add_verbs(CLI::App& app, Chosen& chosen) {
  add_doctor(app, chosen);
  add_list(app, chosen);
  add_plan(app, chosen);
  add_report(app, chosen);
  add_simulate(app, chosen);
#ifdef TW_HAS_TORCH
  add_bench(app, chosen);
  add_train(app, chosen);
  add_eval(app, chosen);
  add_profile(app, chosen);
  add_reproduce(app, chosen);
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

RankCommand& how_to_start() {
  static RankCommand command;
  return command;
}

int parse_and_run(const Words& words) {
  CLI::App app("Thinwire: trains networks at near-linear speed over thin links", "thinwire");
  Chosen chosen;
  app.set_version_flag("--version", "thinwire " + std::string(kVersion));
  app.require_subcommand(1);
  app.footer("'thinwire VERB --help' shows the options and an example of each verb.");
  add_verbs(app, chosen);
  if (words.size() < 2) throw ConfigError("a verb is needed\n\n" + app.help());
  const std::string& first = words[1];
  const auto names = verb_names(app);
  if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end())
    throw ConfigError(unknown_name("verb", first, names));
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
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

const RankCommand& rank_command() { return how_to_start(); }

Words own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  auto words = split(std::string_view(all).substr(0, all.empty() ? 0 : all.size() - 1), '\0');
  return words.empty() ? Words{"thinwire"} : words;
}

std::string program_called() {
  const RankCommand& command = rank_command();
  return command.called.empty() ? "thinwire" : command.called;
}

int run_tool(const Words& words, const Words& program) {
  RankCommand& command = how_to_start();
  // the program that runs, wherever it was found
  command = {"/proc/self/exe", words, words.empty() ? "" : words[0]};
  if (!program.empty()) {
    command = {program[0], program, fmt::format("{}", fmt::join(program, " "))};
    command.words.insert(command.words.end(), words.begin() + 1, words.end());
  }
  on_notice([](const std::string& text) { fmt::print(stderr, "thinwire: {}\n", text); });
  const auto failed = [](const std::exception& error, int code) {
    fmt::print(stderr, "thinwire: {}\n", error.what());
    return code;
  };
  try {
    return flushed(parse_and_run(words));
  } catch (const ConfigError& error) {
    return failed(error, kUsage);
  } catch (const DataError& error) {  // a malformed file, which the user has named
    return failed(error, kUsage);
  } catch (const std::exception& error) {
    return failed(error, kFailed);
  }
}

}  // namespace thinwire::cli
