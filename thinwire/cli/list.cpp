// SPDX-License-Identifier: Apache-2.0
// thinwire list: every name that can stand in a spec, with its options. Rows come from the
// registries alone.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/cli/verbs.h"
#include "thinwire/comm/comm.h"
#include "thinwire/plan/payload.h"
#include "thinwire/plan/planners.h"

namespace thinwire::cli {
namespace {

struct ListOptions {
  bool json = false, markdown = false;
  std::string kind;
};

std::vector<ListRow> all_rows() {
  std::vector<ListRow> rows;
  append_rows(rows, "grouping", groupings());
  append_rows(rows, "transport", transports());
  append_rows(rows, "decorator", comm_decorators());
  append_rows(rows, "codec", payloads());
#ifdef TW_HAS_TORCH
  append_torch_rows(rows);
#endif
  return rows;
}

void print_table(const std::vector<ListRow>& rows) {
  std::size_t name_width = 0;
  for (const auto& row : rows) name_width = std::max(name_width, row.name.size());
  std::string kind;
  for (const auto& row : rows) {
    if (row.kind != kind) fmt::print("{}{}\n", kind.empty() ? "" : "\n", row.kind);
    kind = row.kind;
    fmt::print("  {:<{}}  {}\n", row.name, name_width, row.help);
  }
}

void print_markdown(const std::vector<ListRow>& rows) {
  fmt::print("| kind | name | what it does, options with defaults |\n|---|---|---|\n");
  for (const auto& row : rows) {
    std::string help = row.help;  // a bar would end the cell
    for (std::size_t at = 0; (at = help.find('|', at)) != std::string::npos; at += 2)
      help.insert(at, "\\");
    fmt::print("| {} | `{}` | {} |\n", row.kind, row.name, help);
  }
}

std::string plural(const std::string& kind) {
  return kind.ends_with('y') ? kind.substr(0, kind.size() - 1) + "ies" : kind + "s";
}

/// Those of one kind, written as one or as several ("model", "models").
void keep(std::vector<ListRow>& rows, const std::string& wanted) {
  std::vector<std::string> kinds;
  for (const auto& row : rows)
    if (kinds.empty() || kinds.back() != row.kind) kinds.push_back(row.kind);
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const std::string& each) {
    return wanted == each || wanted == plural(each);
  });
  if (kind == kinds.end()) throw ConfigError("list: " + unknown_name("kind", wanted, kinds));
  std::erase_if(rows, [&](const ListRow& row) { return row.kind != *kind; });
}

int run_list(const ListOptions& options) {
  auto rows = all_rows();
  if (!options.kind.empty()) keep(rows, options.kind);
  if (options.json) {
    Json out = Json::array();
    for (const auto& row : rows)
      out.push_back({{"kind", row.kind}, {"name", row.name}, {"help", row.help}});
    fmt::print("{}\n", dump(out, "list"));
  } else if (options.markdown) {
    print_markdown(rows);
  } else {
    print_table(rows);
  }
  return kOk;
}

}  // namespace

void add_list(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* verb = add_verb(app, chosen, "list", "List every method, its options and defaults",
                            "thinwire list grouping", [options] { return run_list(*options); });
  verb->add_option("kind", options->kind, "Only this kind, for example grouping");
  verb->add_flag("--json", options->json, "One JSON array of {kind, name, help}");
  verb->add_flag("--markdown", options->markdown, "A Markdown table");
}

}  // namespace thinwire::cli
