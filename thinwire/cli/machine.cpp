// SPDX-License-Identifier: Apache-2.0
// What `thinwire doctor` reads off the machine.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>

#include "thinwire/cli/doctor.h"

namespace thinwire::cli {
namespace {

/// The first line of a file of the system; empty where there is none.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string numeric_address(const sockaddr& address) {
  const socklen_t bytes = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(&address, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return host.data();
}

Json interface_json(const std::string& name, unsigned flags) {
  const std::string folder = "/sys/class/net/" + name + "/";
  Json json = {{"name", name}, {"up", (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0}};
  if (const std::string mtu = first_line(folder + "mtu"); !mtu.empty())
    json["mtu"] = std::atoi(mtu.c_str());
  // Megabit a second; -1 or an error where the device has no speed of its own.
  if (const double speed = std::atof(first_line(folder + "speed").c_str()); speed > 0)
    json["speed_bit_per_s"] = speed * 1e6;
  json["addresses"] = Json::array();
  return json;
}

std::int64_t memory_of(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  return 0;
}

}  // namespace

Json network_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Json::array();
  std::map<std::string, Json> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    auto& json = found.try_emplace(one->ifa_name, interface_json(one->ifa_name, one->ifa_flags))
                     .first->second;
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6)
      json["addresses"].push_back(numeric_address(*one->ifa_addr));
  }
  freeifaddrs(list);
  Json out = Json::array();
  for (auto& [name, json] : found) out.push_back(std::move(json));
  return out;
}

Json tcp_settings() {
  Json json = Json::object();
  const auto add = [&](const char* key, const char* file) {
    if (const std::string value = first_line(std::string("/proc/sys/net/ipv4/") + file);
        !value.empty())
      json[key] = value;
  };
  add("congestion_control", "tcp_congestion_control");
  add("congestion_control_available", "tcp_available_congestion_control");
  return json;
}

Json machine() {
  Json allowed = Json::array();
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &cores)) allowed.push_back(core);
  std::array<double, 1> load{};
  Json json = {{"cores", sysconf(_SC_NPROCESSORS_ONLN)},
               {"cores_allowed", std::move(allowed)},
               {"memory_bytes", memory_of("MemTotal")},
               {"memory_available_bytes", memory_of("MemAvailable")}};
  if (getloadavg(load.data(), 1) == 1) json["load_1min"] = load[0];
  return json;
}

}  // namespace thinwire::cli
