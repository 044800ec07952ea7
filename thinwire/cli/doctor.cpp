// SPDX-License-Identifier: Apache-2.0
// thinwire doctor: what this build and this machine offer, and whether the links reach a rate.
#include "thinwire/cli/doctor.h"

#include <fmt/format.h>

#include <memory>

#include "thinwire/cli/verbs.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/core/text.h"
#include "thinwire/report/run_folder.h"

namespace thinwire::cli {

#ifndef TW_HAS_TORCH
Json torch_part() { return Json::object(); }
#endif

namespace {

constexpr double kReached = 0.9;  // TCP's headers take 4 % of a link, a busy machine some more

struct DoctorOptions {
  bool json = false;
  std::string join, interface, rate;
  int rank = -1, ranks = 0;
  double timeout_s = 60;
};

Json diagnosis() {
  Json build = build_versions();
  build.update(torch_part());
  return {{"build", std::move(build)},
          {"transports", transports().names()},
          {"machine", machine()},
          {"tcp", tcp_settings()},
          {"interfaces", network_interfaces()}};
}

JoinOptions join_options(const DoctorOptions& options) {
  if (options.join.empty())
    if (auto launched = launch_environment()) {
      launched->join.timeout_s = options.timeout_s;
      return launched->join;
    }
  if (options.join.empty())
    throw ConfigError(
        "doctor: --rate needs the other ranks: --join HOST:PORT --rank R --ranks N on each "
        "machine");
  if (options.ranks < 2)
    throw ConfigError(fmt::format("doctor: --ranks must be at least 2, got {}", options.ranks));
  if (options.rank < 0 || options.rank >= options.ranks)
    throw ConfigError(
        fmt::format("doctor: --rank must be 0 to {}, got {}", options.ranks - 1, options.rank));
  JoinOptions join;
  join.rank = options.rank;
  join.size = options.ranks;
  join.address = options.join;
  join.interface = options.interface;
  join.timeout_s = options.timeout_s;
  return join;
}

/// Adds whether each link reaches the rate; true if all do.
bool judge(Json& links, double bytes_per_s) {
  bool all = true;
  for (Json& link : links) {
    const bool reached = link.at("bytes_per_s").get<double>() >= kReached * bytes_per_s;
    link["reaches_rate"] = reached;
    all = all && reached;
  }
  return all;
}

void print_line(std::string_view label, std::string_view text) {
  fmt::print("{:<20} {}\n", label, text);
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_machine(const Json& found) {
  for (const auto& [key, value] : found.at("build").items()) print_line(key, text_of(value));
  print_line("transports", join(found.at("transports").get<std::vector<std::string>>(), ", "));
  const Json& here = found.at("machine");
  std::vector<std::string> allowed;
  for (const Json& core : here.at("cores_allowed")) allowed.push_back(core.dump());
  print_line("cores", fmt::format("{}, this process may use {}", here.at("cores").dump(),
                                  join(allowed, ",")));
  if (here.contains("load_1min"))
    print_line("load", fmt::format("{:.2f}", here.at("load_1min").get<double>()));
  print_line("memory", fmt::format("{}, {} available", format_bytes(here.at("memory_bytes")),
                                   format_bytes(here.at("memory_available_bytes"))));
  const Json& tcp = found.at("tcp");
  if (tcp.contains("congestion_control"))
    print_line("congestion control",
               fmt::format("{} (available: {})", text_of(tcp.at("congestion_control")),
                           text_of(tcp.value("congestion_control_available", Json("not said")))));
  for (const Json& one : found.at("interfaces")) {
    std::string text = join(one.at("addresses").get<std::vector<std::string>>(), ", ");
    if (text.empty()) text = "no address";
    if (one.contains("mtu")) text += fmt::format(", MTU {}", one.at("mtu").dump());
    if (one.contains("speed_bit_per_s"))
      text += ", " + format_rate(one.at("speed_bit_per_s").get<double>() / 8);
    if (!one.at("up").get<bool>()) text += ", down";
    print_line("interface " + one.at("name").get<std::string>(), text);
  }
}

void print_links(const Json& links, double asked) {
  for (const Json& link : links) {
    std::string text =
        fmt::format("{}, round trip {}", format_rate(link.at("bytes_per_s").get<double>()),
                    format_seconds(link.at("round_trip_s").get<double>()));
    if (asked > 0)
      text +=
          fmt::format(", {} {}", link.at("reaches_rate").get<bool>() ? "reaches" : "does not reach",
                      format_rate(asked));
    print_line(fmt::format("link {} to {}", link.at("from").dump(), link.at("to").dump()), text);
  }
}

int run_doctor(const DoctorOptions& options) {
  if (!(options.timeout_s > 0))
    throw ConfigError(fmt::format("doctor: --timeout must be above 0, got {}", options.timeout_s));
  const double asked = options.rate.empty() ? 0 : parse_rate(options.rate);
  Json found = diagnosis();
  bool reached = true;
  if (asked > 0 || !options.join.empty()) {
    const auto comm = make_comm("tcp", join_options(options));
    found["links"] = measure_links(*comm);
    for (Json& link : found["links"]) link["congestion_control"] = congestion_control(*comm);
    if (asked > 0) reached = judge(found["links"], asked);
  }
  if (options.json) {
    fmt::print("{}\n", dump(found, "doctor"));
  } else {
    print_machine(found);
    if (found.contains("links")) print_links(found.at("links"), asked);
  }
  return reached ? kOk : kCheckFailed;
}

}  // namespace

void add_doctor(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* verb = add_verb(app, chosen, "doctor",
                            "Say what this build and this machine offer, and what the links carry",
                            "thinwire doctor --join node-a:29400 --rank 0 --ranks 2 --rate 1gbit",
                            [options] { return run_doctor(*options); });
  verb->add_flag("--json", options->json, "One JSON object");
  verb->add_option("--join", options->join,
                   "HOST:PORT where rank 0 listens; measures the links between rank 0 and "
                   "the others");
  verb->add_option("--rank", options->rank, "This machine's rank, from 0");
  verb->add_option("--ranks", options->ranks, "How many take part");
  verb->add_option("--rate", options->rate,
                   "What the links should carry, like 1gbit; exit code 3 where one carries "
                   "less than 90 % of it");
  verb->add_option("--interface", options->interface,
                   "Network interface to use (default: the one that routes to "
                   "rank 0)");
  verb->add_option("--timeout", options->timeout_s, "Seconds to wait for the others (default 60)");
}

}  // namespace thinwire::cli
