// SPDX-License-Identifier: Apache-2.0
// Which rank this process is, by the environment of the launcher that started it.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

int whole(const std::string& name, const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    throw ConfigError(
        fmt::format("{} must be a whole number of at least {}, got '{}'", name, least, text));
  return value;
}

int whole_or(const char* name, int fallback) {
  const auto text = variable(name);
  return text ? whole(name, *text, 0) : fallback;
}

/// Both or neither; a rank outside its size is refused.
bool read_place(const char* rank_name, const char* size_name, JoinOptions& join) {
  const auto rank = variable(rank_name), size = variable(size_name);
  if (!rank && !size) return false;
  if (!rank || !size)
    throw ConfigError(fmt::format("{} is set and {} is not; a launcher sets both",
                                  rank ? rank_name : size_name, rank ? size_name : rank_name));
  join.rank = whole(rank_name, *rank, 0);
  join.size = whole(size_name, *size, 1);
  if (join.rank >= join.size)
    throw ConfigError(fmt::format("{} must be below {} = {}, got {}", rank_name, size_name,
                                  join.size, join.rank));
  return true;
}

void read_common(JoinOptions& join) {
  if (const auto id = variable("THINWIRE_RUN_ID")) join.run_id = *id;
  if (const auto name = variable("THINWIRE_INTERFACE")) join.interface = *name;
  if (const auto text = variable("THINWIRE_TIMEOUT")) {
    char* end = nullptr;
    join.timeout_s = std::strtod(text->c_str(), &end);
    if (*end || !(join.timeout_s > 0))
      throw ConfigError(
          fmt::format("THINWIRE_TIMEOUT must be a number of seconds above 0, got '{}'", *text));
  }
  if (const auto text = variable("THINWIRE_PORTS")) {
    const auto ends = split(*text, '-');
    join.port_first = whole("THINWIRE_PORTS", ends.front(), 1);
    join.port_last = whole("THINWIRE_PORTS", ends.back(), join.port_first);
    if (ends.size() > 2 || join.port_last > 65535)
      throw ConfigError(
          fmt::format("THINWIRE_PORTS must be PORT or FIRST-LAST up to 65535, got '{}'", *text));
  }
}

/// One host under mpirun: a file in the temporary folder, named after the job.
std::string mpi_address() {
  auto job = variable("PMIX_NAMESPACE");
  if (!job) job = variable("OMPI_MCA_ess_base_jobid");
  if (!job) return "";
  std::string name;
  for (const char c : *job) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  const auto folder = std::filesystem::temp_directory_path();
  return fmt::format("file:{}/thinwire-{}-{}", folder.string(), ::getuid(), name);
}

/// The first host of a list such as "node[03-07,9],other".
std::string first_host(const std::string& list) {
  const auto bracket = list.find('[');
  const auto comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

std::string slurm_address() {
  std::string host;
  if (const auto address = variable("SLURM_LAUNCH_NODE_IPADDR");
      address && whole_or("SLURM_NNODES", 1) == 1)
    host = *address;
  if (const auto nodes = variable("SLURM_STEP_NODELIST"); host.empty() && nodes)
    host = first_host(*nodes);
  if (const auto nodes = variable("SLURM_JOB_NODELIST"); host.empty() && nodes)
    host = first_host(*nodes);
  if (host.empty()) return "";
  const int port = 20000 + (whole_or("SLURM_JOB_ID", 0) * 7 + whole_or("SLURM_STEP_ID", 0)) % 20000;
  return fmt::format("{}:{}", host, port);
}

}  // namespace

std::optional<LaunchEnvironment> launch_environment() {
  LaunchEnvironment out;
  JoinOptions& join = out.join;
  if (read_place("THINWIRE_RANK", "THINWIRE_SIZE", join)) {
    out.source = "thinwire";
    out.local_rank = whole_or("THINWIRE_LOCAL_RANK", join.rank);
    out.local_size = whole_or("THINWIRE_LOCAL_SIZE", join.size);
    join.address = variable("THINWIRE_ADDRESS").value_or("");
    if (join.size > 1 && join.address.empty())
      throw ConfigError("THINWIRE_ADDRESS is not set; it names HOST:PORT of rank 0, or file:PATH");
  } else if (variable("MASTER_ADDR") && read_place("RANK", "WORLD_SIZE", join)) {
    out.source = "torchrun";
    out.local_rank = whole_or("LOCAL_RANK", join.rank);
    out.local_size = whole_or("LOCAL_WORLD_SIZE", join.size);
    out.store_host = *variable("MASTER_ADDR");
    out.store_port = whole_or("MASTER_PORT", 0);
    if (const auto id = variable("TORCHELASTIC_RUN_ID"))
      join.run_id = *id + "-" + std::to_string(whole_or("TORCHELASTIC_RESTART_COUNT", 0));
  } else if (read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", join)) {
    out.source = "mpirun";
    out.local_rank = whole_or("OMPI_COMM_WORLD_LOCAL_RANK", join.rank);
    out.local_size = whole_or("OMPI_COMM_WORLD_LOCAL_SIZE", join.size);
    if (out.local_size == join.size) join.address = mpi_address();
    if (const auto job = variable("PMIX_NAMESPACE")) join.run_id = *job;
  } else if (variable("SLURM_STEP_ID") && read_place("SLURM_PROCID", "SLURM_NTASKS", join)) {
    out.source = "srun";
    out.local_rank = whole_or("SLURM_LOCALID", join.rank);
    out.local_size = join.size;
    join.address = slurm_address();
  } else {
    return std::nullopt;
  }
  read_common(join);
  return out;
}

}  // namespace thinwire
